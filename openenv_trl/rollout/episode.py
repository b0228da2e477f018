"""One episode, played in one session: reset, then turns of the model and steps of the environment, up to an end.

Every call of the environment has its deadline. What the model does wrong is answered in the dialogue; what the
environment does wrong ends the attempt with `EpisodeFailed`, and so does a task that the environment refuses; what else
the user did wrong is raised as `ConfigurationError`. What a model or an environment says ends at most its own episode,
never the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import anyio

from openenv_trl.errors import ActionValidationError, ConfigurationError
from openenv_trl.rollout.actions import ActionInterface, ParsedTurn
from openenv_trl.rollout.answer import Answer, done_at_once, read_result
from openenv_trl.rollout.conversation import Conversation, Heard, TokenRecord
from openenv_trl.rollout.failures import EpisodeFailed, failure_of, is_of_the_call
from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.rollout.observer import Phase, RolloutObserver
from openenv_trl.rollout.refusals import RefusalWatch
from openenv_trl.rollout.session import PlayedSession
from openenv_trl.rollout.strategies.tool_errors import ToolErrorRule
from openenv_trl.rollout.task import Message, Task
from openenv_trl.rollout.text_rules import TextRules
from openenv_trl.rollout.trajectory import EndReason, Trajectory, Turn


@dataclass(frozen=True)
class EpisodeSetting:
    """What all episodes of a run share."""

    rules: TextRules
    """Make texts of the environment fit to be read."""
    actions: ActionInterface
    limits: RolloutLimits
    converse: Callable[[list[Message]], Conversation]
    """Begins a conversation with a prompt."""
    refusals: RefusalWatch
    observation_separator: str
    observer: RolloutObserver | None = None
    tool_errors: ToolErrorRule = field(default_factory=ToolErrorRule)
    token_exact: bool = True
    """Whether conversations are known as tokens."""


@dataclass
class Episode:
    """One episode, and what is known of it so far: a trajectory can be made of it at any time."""

    task: Task
    setting: EpisodeSetting
    index: int = 0
    """Its place in the run, for the observer."""
    conversation: Conversation | None = None
    turns: list[Turn] = field(default_factory=list[Turn])
    messages: list[Message] = field(default_factory=list[Message])
    first_observation: str = ""
    base_url: str = ""
    attempts: int = 0
    marks_broken: int = 0
    failures: list[str] = field(default_factory=list[str])
    rewards: list[float | None] = field(default_factory=list["float | None"])
    """Of the actions so far."""
    invalid_actions: int = 0
    waiting_s: float = 0.0
    reset_s: float = 0.0
    started_s: float = 0.0
    session_in_call: bool = False
    """Whether the session is in the middle of a call: if the episode ends here, no one may use it again."""

    async def play(self, session: PlayedSession) -> EndReason:
        """Play from the beginning, in this session.

        Raises:
            EpisodeFailed: The environment failed.
            ConfigurationError: The user's settings cannot work.
            PolicyError: The policy's completions are not what they must be.
        """
        self.conversation, self.turns, self.messages = None, [], []
        self.first_observation, self.reset_s, self.marks_broken = "", 0.0, 0
        self.rewards, self.invalid_actions = [], 0
        conversation = self.conversation = await self._begin(session)
        limits = self.setting.limits
        while True:
            room = limits.max_completion_tokens - conversation.tokens_used
            parsed = await self._ask(conversation, min(room, limits.max_new_tokens_per_turn or room))
            if parsed is None:
                self._turn_ended()
                return EndReason.MAX_TOKENS
            if not parsed.calls and parsed.problem is None:
                self._turn_ended()
                return EndReason.NO_ACTION
            answers, end = await self._act(session, parsed)
            self._turn_ended()
            if end is not None:
                return end
            if len(self.turns) >= limits.max_turns:
                return EndReason.MAX_TURNS
            try:
                fits = conversation.answer(answers, limits.max_completion_tokens)
            except ConfigurationError as error:
                # The template was checked before: what it cannot render now is what this environment says.
                raise EpisodeFailed(EndReason.ENVIRONMENT_ERROR, f"step: {error}") from error
            if not fits:
                return EndReason.MAX_TOKENS

    def enter(self, phase: Phase) -> None:
        """Tell the observer that the episode goes on to this phase."""
        observer = self.setting.observer
        if observer is not None:
            observer.phase_changed(self.index, phase, anyio.current_time())

    def _turn_ended(self) -> None:
        observer = self.setting.observer
        if observer is not None:
            observer.turn_ended(self.index, self.turns[-1], anyio.current_time())

    def trajectory(self, end_reason: EndReason, ended_s: float, error: str | None = None) -> Trajectory:
        """What the episode is, ended for this reason."""
        if self.conversation is None:
            tokens = TokenRecord(prompt_ids=self._bare_prompt_ids(), exact=self.setting.token_exact)
        else:
            tokens = self.conversation.record()
        return Trajectory(
            task=self.task,
            prompt_ids=tokens.prompt_ids,
            completion_ids=tokens.completion_ids,
            mask=tokens.mask,
            logprobs=tokens.logprobs,
            versions=tokens.versions,
            token_exact=tokens.exact,
            sampled=tokens.sampled,
            earlier=tokens.earlier,
            failures=list(self.failures),
            turns=self.turns,
            end_reason=end_reason,
            error=error,
            attempts=max(self.attempts, 1),
            first_observation=self.first_observation,
            base_url=self.base_url,
            started_s=self.started_s,
            ended_s=ended_s,
            waiting_s=self.waiting_s,
            reset_s=self.reset_s,
            messages=self.messages,
            marks_broken=self.marks_broken,
        )

    def _bare_prompt_ids(self) -> list[int]:
        """The prompt without an observation; empty where the template needs one (a message of the user's)."""
        try:
            return self.setting.rules.prompt_ids(self.task.prompt)
        except ConfigurationError:
            return []

    async def _begin(self, session: PlayedSession) -> Conversation:
        self.enter(Phase.RESET)
        began = anyio.current_time()
        limits = self.setting.limits
        result = await self._call("reset", limits.reset_timeout_s, lambda: session.reset(**self.task.reset))
        self.reset_s = anyio.current_time() - began
        if result.done:
            raise done_at_once(result)
        self.first_observation = result.text
        self.messages = _with_observation(self.task.prompt, result.text, self.setting.observation_separator)
        try:
            return self.setting.converse(self.messages)
        except ConfigurationError as error:
            if not self._bare_prompt_ids():
                raise
            raise EpisodeFailed(EndReason.ENVIRONMENT_ERROR, f"reset: {error}") from error

    async def _ask(self, conversation: Conversation, max_new_tokens: int) -> ParsedTurn | None:
        """The model's next message; None where a limit cut it."""
        self.enter(Phase.GENERATING)
        began = anyio.current_time()
        heard = await self._hear(conversation, max_new_tokens)
        spent = anyio.current_time() - began
        self.turns.append(Turn(text=heard.text, completion_tokens=heard.tokens, generate_s=spent))
        parsed = heard.parsed
        self.messages.append({"role": "assistant", "content": heard.text} if parsed is None else parsed.message)
        return parsed

    async def _hear(self, conversation: Conversation, max_new_tokens: int) -> Heard:
        timeout_s = self.setting.limits.generate_timeout_s
        if timeout_s is None:
            return await conversation.ask(max_new_tokens)
        with anyio.move_on_after(timeout_s):
            return await conversation.ask(max_new_tokens)
        raise EpisodeFailed(
            EndReason.GENERATE_TIMEOUT, f"generate: the message took longer than generate_timeout_s={timeout_s:g}"
        )

    async def _act(self, session: PlayedSession, parsed: ParsedTurn) -> tuple[list[tuple[str, str]], EndReason | None]:
        """Take the actions of a message in order; what the environment answered, and the end if that ended it."""
        turn = self.turns[-1]
        answers: list[tuple[str, str]] = []
        if parsed.problem is not None:
            tools = self.setting.actions.tools
            self._refuse(turn, answers, tools[0].name if tools else "", parsed.problem)
        for call in parsed.calls:
            if call.action is None:
                self._refuse(turn, answers, call.name, call.problem or "Error: invalid action.", call.id)
                continue
            try:
                result = await self._step(session, call.action)
            except ActionValidationError as error:
                self.setting.refusals.refused(error, call.action)
                self._refuse(turn, answers, call.name, f"Error: {error}", call.id)
                continue
            self.setting.refusals.accepted()
            turn.mistaken_calls += result.is_mistake
            turn.actions.append(call.action)
            turn.observations.append(result.text)
            turn.truncated_observation_tokens += result.tokens_cut
            turn.rewards.append(result.reward)
            self.rewards.append(result.reward)
            answers.append((call.name, result.text))
            self._log_answer(call.name, result.text, call.id)
            if result.done:
                turn.done = True
                return answers, EndReason.TRUNCATED if result.truncated else EndReason.DONE
        self.invalid_actions += len(turn.problems) + turn.mistaken_calls
        too_many = self.invalid_actions > self.setting.limits.max_invalid_actions
        return answers, EndReason.INVALID_ACTION if too_many else None

    async def _step(self, session: PlayedSession, action: dict[str, Any]) -> Answer:
        self.enter(Phase.STEPPING)
        began = anyio.current_time()
        try:
            return await self._call("step", self.setting.limits.step_timeout_s, lambda: session.step(action))
        finally:
            self.turns[-1].environment_s += anyio.current_time() - began

    async def _call(self, phase: str, timeout_s: float, call: Callable[[], Awaitable[Any]]) -> Answer:
        """One call of the environment, under its deadline, and what it answered."""
        self.session_in_call = True
        try:
            result = await _within(timeout_s, call)
        except ConfigurationError as error:
            self.session_in_call = False  # the environment has answered, and goes on: it was asked in vain
            raise failure_of(error, phase) from error
        except ActionValidationError as error:
            if phase == "step":
                self.session_in_call = False
                raise
            raise failure_of(error, phase) from error
        except TimeoutError as error:
            text = str(error) or f"the environment did not answer within {timeout_s:g} s"
            raise failure_of(TimeoutError(text), phase) from error
        except BaseException as error:  # boundary: sessions and environments may be anyone's code
            if not await is_of_the_call(error):
                raise
            raise failure_of(error, phase) from error
        limit = self.setting.limits.max_observation_tokens
        answer = read_result(
            result,
            phase,
            self.setting.rules,
            max_tokens=limit,
            earlier_rewards=self.rewards,
            tool_errors=self.setting.tool_errors,
            cut=self.setting.limits.observation_cut,
        )
        self.marks_broken += answer.marks_broken
        self.session_in_call = False
        return answer

    def _refuse(self, turn: Turn, answers: list[tuple[str, str]], name: str, problem: str, call_id: str = "") -> None:
        problem, marks_broken = self.setting.rules.defuse(problem)
        self.marks_broken += marks_broken
        turn.problem_places.append(len(turn.observations))
        turn.problems.append(problem)
        turn.observations.append(problem)
        answers.append((name, problem))
        self._log_answer(name, problem, call_id)

    def _log_answer(self, name: str, text: str, call_id: str) -> None:
        role = self.setting.actions.answer_role
        answer = {"role": role, "name": name, "content": text, **({"tool_call_id": call_id} if call_id else {})}
        self.messages.append(answer if role == "tool" else _user(text))


async def _within(timeout_s: float, call: Callable[[], Awaitable[Any]]) -> Any:
    """What the call gives. As ``anyio.fail_after`` does, without its generators: each step of each episode comes by.

    Raises:
        TimeoutError: It took longer.
    """
    with anyio.CancelScope(deadline=anyio.current_time() + timeout_s):
        return await call()
    raise TimeoutError


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _with_observation(prompt: Any, observation: str, separator: str) -> list[Message]:
    """The prompt with the first observation at its end, in the user's last message where that is the last one."""
    messages = [dict(message) for message in cast("list[Message]", prompt)]
    if not observation:
        return messages
    last = messages[-1]
    content = last.get("content")
    if last["role"] != "user":
        return [*messages, _user(observation)]
    if isinstance(content, list):
        blocks = cast("list[Any]", content)
        last["content"] = [*blocks, {"type": "text", "text": observation}]
    else:
        last["content"] = f"{content}{separator}{observation}" if content else observation
    return messages
