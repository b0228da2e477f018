"""How a solution is judged: its code runs in one process, the hidden tests in another, both fresh and both sandboxed.

The solution's process gets the arguments of calls and never the tests; the tests' process gets data and never code of
the solution's; the verdicts come from the latter, over a channel that the former has no end of. Where a solution ends
its process or does not answer, the test at hand has failed, and the rest are run with a new process.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.lowlevel import RunVar

from coding_env.sandbox.first_process import processes_allowed
from coding_env.sandbox.inside.bundle import unbundled
from coding_env.sandbox.inside.files import MAX_LISTED
from coding_env.sandbox.launcher import Sandbox
from coding_env.sandbox.session import Reply, SandboxSession
from coding_env.sandbox.starting import started_session

_HELLO_TIMEOUT_S = 10.0
_MOST_AT_ONCE = 16
_PROCESSES_OF_A_GRADING = 4  # a keeper and a worker for the solution, and as many for the tests
_limiters = RunVar[dict[int, anyio.CapacityLimiter]]("coding_env_gradings")
_MAX_NEW_STARTS = 8  # a solution that hangs in more tests than that fails the rest


@dataclass
class Verdict:
    """What the hidden tests say.

    Attributes:
        outcomes: For each test in its order, why it failed; "" where it passed.
        seconds: How long it took, once the processes were there.
    """

    outcomes: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    @property
    def passed(self) -> int:
        """Tests that passed."""
        return sum(not why for why in self.outcomes)

    @property
    def share(self) -> float:
        """Share of the tests that passed."""
        return self.passed / len(self.outcomes) if self.outcomes else 0.0


async def grade(
    sandbox: Sandbox,
    files: dict[str, str],
    tests: list[str],
    *,
    timeout_s: float,
    test_timeout_s: float,
    concurrent: int | None = None,
) -> Verdict:
    """Judge a solution.

    Args:
        sandbox: Where the two processes come from.
        files: The solution's modules by their paths; ``solution.py`` among them.
        tests: The tests' sources.
        timeout_s: Seconds for all of them together; those that it does not reach have failed.
        test_timeout_s: Seconds that the solution may take over each call.
        concurrent: How many are judged at once; others wait. `concurrent_gradings` if None.

    Raises:
        EnvironmentExecutionError: The processes could not be started, so that nothing is said of the solution.
    """
    verdict = Verdict()
    async with _turn(concurrent or concurrent_gradings()):
        for _ in range(_MAX_NEW_STARTS):
            left = timeout_s - verdict.seconds
            if len(verdict.outcomes) == len(tests) or left <= 0:
                break
            await _judge_rest(sandbox, files, tests, verdict, left, test_timeout_s)
    missing = len(tests) - len(verdict.outcomes)
    verdict.outcomes += ["the time for the tests was up, or the solution ended too often"] * missing
    return verdict


def concurrent_gradings() -> int:
    """How many solutions are judged at once by default: 16, or what a quarter of the container's processes allows."""
    allowed = processes_allowed()
    return _MOST_AT_ONCE if allowed is None else max(1, min(_MOST_AT_ONCE, allowed // 4 // _PROCESSES_OF_A_GRADING))


def _turn(concurrent: int) -> anyio.CapacityLimiter:
    """What lets so many judge at once, on this event loop."""
    try:
        limiters = _limiters.get()
    except LookupError:
        limiters = {}
        _limiters.set(limiters)
    return limiters.setdefault(concurrent, anyio.CapacityLimiter(concurrent))


async def _judge_rest(
    sandbox: Sandbox,
    files: dict[str, str],
    tests: list[str],
    verdict: Verdict,
    timeout_s: float,
    test_timeout_s: float,
) -> None:
    """Run the tests that have no outcome yet, until the solution's process is lost. Settles one at least."""
    first, token = len(verdict.outcomes), secrets.token_hex(16)
    request = {"op": "judge", "tests": tests[first:], "first": first, "seconds": test_timeout_s, "token": token}
    for_solution, for_judge = socket.socketpair()
    # Each session closes the end that it hands on, so that the judge sees the end of the other process.
    with for_solution, for_judge:
        async with _session(sandbox) as solution, _session(sandbox) as judge, anyio.create_task_group() as group:
            serving = {"op": "solution", "files": files}
            started = time.monotonic()
            group.start_soon(lambda: solution.request(serving, timeout_s, interruptible=False, peer=for_solution))
            reply = await judge.request(request, timeout_s, interruptible=False, messages=len(tests), peer=for_judge)
            verdict.seconds += time.monotonic() - started
            _settle(verdict, reply, len(tests), token)
            group.cancel_scope.cancel()


def _settle(verdict: Verdict, reply: Reply, total: int, token: str) -> None:
    for message in reply.others:
        if message.get("token") == token and message.get("number") == len(verdict.outcomes) < total:
            why = str(message.get("why") or "failed")
            verdict.outcomes.append("" if message.get("passed") is True else why)
    if reply.failure and len(verdict.outcomes) < total:
        verdict.outcomes.append(f"the test was ended: {reply.failure}")


@contextlib.asynccontextmanager
async def _session(sandbox: Sandbox) -> AsyncGenerator[SandboxSession]:
    """Give a session that has answered: what ends it now is the solution's doing."""
    session = await started_session(sandbox, {"op": "hello"}, _HELLO_TIMEOUT_S)
    try:
        yield session
    finally:
        session.close()


def solution_files(exported: Any, cells: list[str], code: str | None) -> dict[str, str]:
    """Return what is judged: the code given, or else the workspace's ``solution.py``, or else the cells that ran.

    Args:
        exported: The workspace's modules, as its worker tells; any of it may be made up.
        cells: The cells of the episode that ran without an error.
        code: The code given.
    """
    files = {path: text.decode("utf-8", "replace") for path, text in unbundled(exported, MAX_LISTED)}
    if code is not None:
        files["solution.py"] = code
    elif "solution.py" not in files:
        files["solution.py"] = "\n\n".join(cells)
    return files
