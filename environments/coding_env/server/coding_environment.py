"""Python in a sandbox as an environment: code runs in an interpreter that keeps its names, and hidden tests judge it.

Every session has an interpreter in a process of its own, behind the layers of ``coding_env.sandbox``. The hooks wait
for it on the event loop: a run stops no other session, and an idle session holds no thread.
"""

from __future__ import annotations

import base64
import os
from typing import Any, ClassVar

# By the package's own name, not relative: this module is also loaded as ``server.coding_environment``.
from coding_env.models import CodeAction, CodeObservation, CodeState
from coding_env.sandbox.inside.bundle import unbundled
from coding_env.sandbox.inside.files import MAX_LISTED
from coding_env.sandbox.launcher import Sandbox, shared_sandbox
from coding_env.sandbox.session import Reply, SandboxSession
from coding_env.sandbox.starting import request_of_started, started_session
from coding_env.server import rules
from coding_env.server.grading import Verdict, grade, solution_files
from coding_env.server.settings import EpisodeSettings, RewardKind, SandboxSettings, episode_settings
from coding_env.server.tasks import CodingTask, find_task, own_task
from openenv_trl.blocking import wait_for
from openenv_trl.environment import Environment, tool
from openenv_trl.errors import ConfigurationError, SessionStateError
from openenv_trl.types import EnvironmentMetadata

_KILLED, _TIMED_OUT = 137, 124  # as a shell and timeout(1) have them
_FILE_TIMEOUT_S = 10.0
_MAX_READ_BYTES = 65536
_MAX_ERROR, _MAX_DIGITS = 1000, 20  # characters of what a worker says of a file
_NO_SOLUTION = "there is no solution: no code was given, and there is neither a solution.py nor a cell that ran well"
_ABOUT_ALL = ("importing the solution", _NO_SOLUTION)  # what concerns no single test, and tells nothing of one
_NEW_INTERPRETER = "The next run has a new interpreter: names are gone, files are still there."
_NEW_SESSION = "The next run has a new session: names and files are gone."


class CodingEnvironment(Environment[CodeAction, CodeObservation, CodeState]):
    r"""An interpreter an episode, with a workspace, and hidden tests where there is a task.

    Args:
        episode: How episodes are played, unless ``reset`` says otherwise.
        sandbox: What sessions run in. Instances with equal settings share one.

    Example:
        >>> env = CodingEnvironment()
        >>> _ = env.reset(seed=1)
        >>> env.step(CodeAction(code="x = 20\nx + 1")).stdout
        '21\n'
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True

    def __init__(self, episode: EpisodeSettings | None = None, sandbox: SandboxSettings | None = None) -> None:
        self._defaults = episode or EpisodeSettings()
        wanted = sandbox or SandboxSettings()
        self._concurrent_gradings = wanted.concurrent_gradings
        self._sandbox: Sandbox = shared_sandbox(
            wanted.limits,
            packages=wanted.packages,
            warm=wanted.warm_sessions,
            disabled=wanted.disabled_layers,
            minimum=wanted.min_level,
            executor=wanted.executor,
            imports=wanted.imports,
            bubblewrap=wanted.bubblewrap,
        )
        self._settings = self._defaults
        self._session: SandboxSession | None = None
        self._task: CodingTask | None = None
        self._state = CodeState(sandbox=self._sandbox.report.level.name.lower())
        self._cells: list[str] = []
        self._over = False

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task_id: str | None = None,
        prompt: str | None = None,
        tests: str | list[str] | None = None,
        reward: RewardKind | None = None,
        max_steps: int | None = None,
        max_attempts: int | None = None,
        run_timeout_s: float | None = None,
        tests_timeout_s: float | None = None,
        test_timeout_s: float | None = None,
        **kwargs: Any,
    ) -> CodeObservation:
        """Begin an episode with a new interpreter and an empty workspace.

        Args:
            seed: Seeds the interpreter's ``random``, and picks the task where ``task_id`` is "random"; drawn from the
                operating system's entropy if None.
            episode_id: A name for the episode; made up if None.
            task_id: One of the tasks that come with the environment, or "random", or "random:LEVEL".
            prompt: The task in words, where it is none of those; goes with ``tests``.
            tests: Its hidden tests: texts of Python code, or one text with ``test_…`` functions.
            reward: See `EpisodeSettings`, as for the next five.
            max_steps: Steps of the episode.
            max_attempts: Calls of ``run_tests``.
            run_timeout_s: Seconds of one run.
            tests_timeout_s: Seconds of all hidden tests.
            test_timeout_s: Seconds of each call that a test makes.
            **kwargs: Not accepted; any other name is refused.

        Returns:
            An observation whose ``stdout`` is the task's prompt; empty without a task.

        Raises:
            ConfigurationError: An argument that cannot be used; nothing has changed then.
        """
        if kwargs:
            raise ConfigurationError(
                f"The coding environment's reset does not know {', '.join(map(repr, sorted(kwargs)))}. It takes seed, "
                "episode_id, task_id, prompt, tests, reward, max_steps, max_attempts, run_timeout_s, tests_timeout_s "
                "and test_timeout_s."
            )
        _require_integer(seed)
        _require_text(task_id)
        given = {
            "reward": reward,
            "max_steps": max_steps,
            "max_attempts": max_attempts,
            "run_timeout_s": run_timeout_s,
            "tests_timeout_s": tests_timeout_s,
            "test_timeout_s": test_timeout_s,
        }
        settings = episode_settings(given, self._defaults)
        # 48 bits: every JSON reader holds them exactly.
        chosen_seed = int.from_bytes(os.urandom(6), "big") if seed is None else seed
        task = _task(task_id, prompt, tests, chosen_seed)
        self.close()
        self._settings, self._task, self._cells, self._over = settings, task, [], False
        self._state = CodeState(
            episode_id=os.urandom(16).hex() if episode_id is None else episode_id,
            seed=chosen_seed,
            task_id=task.id or None if task else None,
            tests_total=len(task.tests) if task else 0,
            sandbox=self._sandbox.report.level.name.lower(),
        )
        await self._ready_session()
        return CodeObservation(stdout=task.prompt if task else "")

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> CodeObservation:
        """Like `reset_async`, without an event loop."""
        return wait_for(self.reset_async(seed, episode_id, **kwargs), what="reset")

    async def step_async(self, action: CodeAction, timeout_s: float | None = None, **kwargs: Any) -> CodeObservation:
        """Run the action's code.

        Args:
            action: The code.
            timeout_s: Seconds that it may take, where that is less than the episode's ``run_timeout_s``.
            **kwargs: Not used.

        Raises:
            SessionStateError: There is no episode: call ``reset`` first. Nothing was run.
        """
        return await self._run(action.code, timeout_s)

    def step(self, action: CodeAction, timeout_s: float | None = None, **kwargs: Any) -> CodeObservation:
        """Like `step_async`, without an event loop."""
        return wait_for(self.step_async(action, timeout_s), what="step")

    @property
    def state(self) -> CodeState:
        """The episode's name, steps, seed, task, and what its tests said."""
        return self._state.model_copy()

    @tool
    async def run_python(self, code: str) -> CodeObservation:
        """Run Python code. Names stay defined between calls, and the value of a last expression is shown."""
        return await self._run(code, None)

    @tool
    async def write_file(self, path: str, content: str) -> CodeObservation:
        """Write a text file in the workspace; one that is there is replaced. Tests judge solution.py."""
        return await self._file({"op": "write", "path": path, "text": content})

    @tool
    async def read_file(self, path: str) -> CodeObservation:
        """Read a text file of the workspace."""
        return await self._file({"op": "read", "path": path, "limit": _MAX_READ_BYTES})

    @tool
    async def list_files(self) -> CodeObservation:
        """List the files of the workspace with their sizes in bytes."""
        return await self._file({"op": "list"})

    @tool
    async def run_tests(self, code: str | None = None) -> CodeObservation:
        """Hand in the solution: the code given, else solution.py, else all that ran well. Hidden tests judge it."""
        self._require_episode()
        if self._task is None:
            text = "This episode has no hidden tests. They come with reset: by task_id, or by prompt and tests.\n"
            return await self._step_done(CodeObservation(stderr=text, exit_code=1), None)
        return await self._step_done(CodeObservation(), code, hand_in=True)

    def get_metadata(self) -> EnvironmentMetadata:
        """Name, version, what runs code, and what the sandbox is worth on this system."""
        runs = {"python": "", "smolagents": " Code is run by smolagents' interpreter."}[self._sandbox.executor]
        return EnvironmentMetadata(
            name="coding_env",
            description=f"Python in a sandbox, judged by hidden tests.{runs} {self._sandbox.report.sentence()}",
            version="0.1.0",
        )

    def close(self) -> None:
        """End the session: its processes and its files are gone."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    async def _ready_session(self) -> SandboxSession:
        session = self._session
        if session is None or not session.usable:
            self.close()
            seeding = {"op": "seed", "seed": self._state.seed}
            session = self._session = await started_session(self._sandbox, seeding, _FILE_TIMEOUT_S)
        return session

    async def _run(self, code: str, timeout_s: float | None) -> CodeObservation:
        self._require_episode()
        allowed = min(self._settings.run_timeout_s, timeout_s or self._settings.run_timeout_s)
        session = await self._ready_session()
        reply = await request_of_started(session, {"op": "run", "code": code}, allowed)
        observation = self._observation(reply, allowed)
        self._state.last_exit_code = observation.exit_code
        if observation.exit_code == 0:
            self._cells.append(code)
        if self._settings.reward == "rules":
            observation.reward = rules.reward(code)
            observation.metadata = {"last_code": code, "safety_violation": rules.violation(code)}
        return await self._step_done(observation, None)

    async def _file(self, operation: dict[str, Any]) -> CodeObservation:
        self._require_episode()
        session = await self._ready_session()
        reply = await request_of_started(session, operation, _FILE_TIMEOUT_S)
        if reply.data is None:
            return await self._step_done(self._observation(reply, _FILE_TIMEOUT_S), None)
        error = reply.data.get("error")
        if error is not None:
            return await self._step_done(CodeObservation(stderr=f"{str(error)[:_MAX_ERROR]}\n", exit_code=1), None)
        return await self._step_done(CodeObservation(stdout=_file_text(operation, reply.data)), None)

    def _observation(self, reply: Reply, allowed: float) -> CodeObservation:
        stderr = reply.stderr
        if reply.data is not None:
            code = reply.data.get("exit_code")
            exit_code = code & 0xFF if isinstance(code, int) else 1
            if reply.timed_out:
                stderr += f"The run was interrupted: its {allowed:g} s were up.\n"
                exit_code = _TIMED_OUT
            return CodeObservation(stdout=reply.stdout, stderr=stderr, exit_code=exit_code)
        usable = self._session is not None and self._session.usable
        stderr += f"{reply.failure} {_NEW_INTERPRETER if usable else _NEW_SESSION}\n"
        return CodeObservation(stdout=reply.stdout, stderr=stderr, exit_code=_TIMED_OUT if reply.timed_out else _KILLED)

    async def _step_done(
        self, observation: CodeObservation, code: str | None, *, hand_in: bool = False
    ) -> CodeObservation:
        """Count the step, and have the tests run where it hands the solution in or is the last."""
        settings, state = self._settings, self._state
        at_limit = settings.max_steps is not None and state.step_count + 1 >= settings.max_steps
        # First, so that the state is as before where they could not be run.
        judged = self._task is not None and (hand_in or (at_limit and settings.reward == "tests"))
        verdict = await self._judge(code) if judged else None
        state.step_count += 1
        if verdict is None:
            if at_limit:
                self._end(observation, truncated=True)
            elif self._task is not None and settings.reward == "tests":
                observation.reward = 0.0
            return observation
        state.attempts += 1
        state.tests_passed = verdict.passed
        ended = verdict.share == 1.0 or at_limit or (hand_in and state.attempts >= settings.max_attempts)
        observation.stdout += _told(verdict)
        if settings.reward == "tests":
            observation.reward = verdict.share if ended else 0.0
        if ended:
            self._end(observation, truncated=at_limit and not hand_in)
        return observation

    def _end(self, observation: CodeObservation, *, truncated: bool) -> None:
        self._over = True
        observation.done = True
        if truncated:
            observation.metadata = {**observation.metadata, "truncated": True}

    async def _judge(self, code: str | None) -> Verdict:
        assert self._task is not None, "only an episode with a task is judged"
        session = await self._ready_session()
        reply = await request_of_started(session, {"op": "export"}, _FILE_TIMEOUT_S)
        files = solution_files((reply.data or {}).get("files"), self._cells, code)
        if not files["solution.py"].strip():
            return Verdict([_NO_SOLUTION] * len(self._task.tests))
        return await grade(
            self._sandbox,
            files,
            self._task.tests,
            timeout_s=self._settings.tests_timeout_s,
            test_timeout_s=self._settings.test_timeout_s,
            concurrent=self._concurrent_gradings,
        )

    def _require_episode(self) -> None:
        if self._over:
            raise SessionStateError("This episode is over. Call reset to begin another.", phase="step")
        if self._state.episode_id is None:
            raise SessionStateError("No episode has begun. Call reset before the first step.", phase="step")


def _require_integer(seed: object) -> None:
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ConfigurationError(f"seed must be an integer or None, not {seed!r}.")


def _require_text(task_id: object) -> None:
    if task_id is not None and not isinstance(task_id, str):
        raise ConfigurationError(f"task_id must be a task's name, such as 'clamp' or 'random', not {task_id!r}.")


def _task(task_id: str | None, prompt: str | None, tests: str | list[str] | None, seed: int) -> CodingTask | None:
    if task_id is not None:
        if prompt is not None or tests is not None:
            raise ConfigurationError("Give task_id, or prompt and tests, and not both: a task has tests of its own.")
        return find_task(task_id, seed)
    if tests is not None or prompt is not None:
        return own_task(prompt or "", tests)
    return None


def _file_text(operation: dict[str, Any], data: dict[str, Any]) -> str:
    if operation["op"] == "write":
        return f"Wrote {len(operation['text'].encode('utf-8', 'replace'))} bytes to {operation['path']}.\n"
    if operation["op"] == "read":
        text = _text(data.get("text"))
        return f"{text}\n[... cut after {_MAX_READ_BYTES} bytes ...]\n" if data.get("truncated") else text
    files = unbundled(data.get("files"), MAX_LISTED)
    lines = [f"{size[:_MAX_DIGITS].decode('ascii', 'replace')} {path}\n" for path, size in files]
    if data.get("truncated"):
        lines.append(f"[... cut after {len(lines)} files ...]\n")
    return "".join(lines) or "The workspace is empty.\n"


def _text(told: Any) -> str:
    """A file's text, as far as what a worker says is one."""
    try:
        data = base64.b64decode(told if isinstance(told, str) else "", validate=True)
    except ValueError:
        return ""
    return data[:_MAX_READ_BYTES].decode("utf-8", "replace")


def _told(verdict: Verdict) -> str:
    text = f"{verdict.passed} of {len(verdict.outcomes)} hidden tests passed.\n"
    why = verdict.outcomes[0] if verdict.outcomes else ""
    return f"{text}{why[0].upper()}{why[1:]}\n" if why.startswith(_ABOUT_ALL) else text
