"""Episodes as the checks see them: played by the hooks that a server would call, and recorded moment by moment."""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from anyio.from_thread import BlockingPortal
from pydantic import ValidationError

from openenv_trl.environment_checker.sampling import sample
from openenv_trl.environment_checker.subject import AnyEnvironment, Subject
from openenv_trl.errors import ConfigurationError
from openenv_trl.types import Action, CallToolAction, Observation, State
from openenv_trl.wire.codec import encode

ActionLike = Action | Mapping[str, Any]
SampleActions = Sequence[ActionLike] | Callable[[Observation, random.Random], ActionLike]
Hooks = Literal["served", "sync"]

_ATTEMPTS = 50  # draws before an action class counts as one that the sampler cannot serve


@dataclass(frozen=True)
class Moment:
    """What a reset or a step brought.

    Attributes:
        call: The call in words, for findings.
        phase: "reset" or "step".
        result: What the hook returned; None where it raised.
        error: What the hook raised; None where it returned.
        state: The environment's state right after, or what reading it raised.
        seen: The moment as text, equal for equal moments; written at once, since environments may use one object for
            all their observations. ``result`` and ``state`` hold what they held only until the next step.
    """

    call: str
    phase: Literal["reset", "step"]
    result: Any
    error: Exception | None
    state: State | Exception | Any
    seen: str

    @property
    def over(self) -> bool:
        """Whether no step can follow."""
        return self.error is not None or not isinstance(self.result, Observation) or bool(self.result.done)


Trajectory = list[Moment]


def first_difference(one: Trajectory, other: Trajectory) -> str | None:
    """Where two trajectories part, in words; None where they are equal."""
    for left, right in zip(one, other, strict=False):
        if left.seen != right.seen:
            return f"after {left.call}: {_short(left.seen)} in one, {_short(right.seen)} in the other"
    if len(one) != len(other):
        return f"one ended after {min(len(one), len(other))} calls, the other after {max(len(one), len(other))}"
    return None


def attempt(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What a call of the author's code returned, or what it raised."""
    try:
        return call(), None
    except Exception as error:  # the author's code may raise anything, and that is what a check reports
        return None, error


def close(environment: AnyEnvironment) -> tuple[object, Exception | None]:
    """Close an environment: what that returned, or what it raised. A coroutine is not run, as on a server."""
    result, error = attempt(environment.close)
    if inspect.iscoroutine(result):
        result.close()
    return result, error


@dataclass(frozen=True)
class Player:
    """Plays episodes of a subject.

    Attributes:
        subject: What is played.
        portal: Where asynchronous hooks run, all on one event loop, as on a server.
        sample_actions: The caller's actions; drawn from the action's JSON Schema or the tools if None.
        reset_arguments: Passed to every reset beside the seed and the episode's name.
        steps: The longest episode.
    """

    subject: Subject
    portal: BlockingPortal
    sample_actions: SampleActions | None
    reset_arguments: Mapping[str, Any]
    steps: int

    def play(
        self,
        environment: AnyEnvironment,
        seed: int,
        *,
        episode_id: str = "check",
        hooks: Hooks = "served",
        action_seed: int | None = None,
    ) -> Trajectory:
        """Play one episode to its end, its first failure or the largest number of steps.

        Args:
            environment: What is played; it need not be fresh.
            seed: Given to reset, and decides the drawn actions too where ``action_seed`` is None.
            episode_id: Given to reset.
            hooks: "served" for those that a server calls, "sync" for the synchronous ones.
            action_seed: Decides the drawn actions alone.
        """
        return list(self.moments(environment, seed, episode_id=episode_id, hooks=hooks, action_seed=action_seed))

    def moments(
        self,
        environment: AnyEnvironment,
        seed: int,
        *,
        episode_id: str = "check",
        hooks: Hooks = "served",
        action_seed: int | None = None,
    ) -> Iterator[Moment]:
        """The same, one moment at a time, so that episodes of several environments can be interleaved."""
        moment = self._reset(environment, seed, episode_id, hooks)
        yield moment
        generator = random.Random(seed if action_seed is None else action_seed)
        for index in range(self.steps):
            if moment.over:
                return
            moment = self._step(environment, self.action(index, moment.result, generator), hooks)
            yield moment

    def action(self, index: int, observation: Observation, generator: random.Random) -> Action:
        """The episode's action of that index, as the caller gave it or drawn.

        Raises:
            ConfigurationError: The caller's action does not fit the action class, or none can be made.
        """
        given = self.sample_actions
        if given is None:
            return self._drawn(generator)
        action = given(observation, generator) if callable(given) else given[index % len(given)]
        if isinstance(action, Action):
            return action.model_copy(deep=True)
        cls = CallToolAction if action.get("type") == "call_tool" else self.subject.action_cls
        if cls is None:
            raise ConfigurationError(f"sample_actions holds the dict {action!r}: name its class as action_cls.")
        try:
            return cls.model_validate(action)
        except ValidationError as error:
            raise ConfigurationError(f"sample_actions holds {action!r}, which is no {cls.__name__}: {error}") from error

    def call_tool(self, environment: AnyEnvironment, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool as a server would: an asynchronous one on the event loop."""
        result = environment.call_tool(name, dict(arguments))
        return self._awaited(result) if inspect.isawaitable(result) else result

    def _drawn(self, generator: random.Random) -> Action:
        cls = self.subject.action_cls
        if cls is None or issubclass(cls, CallToolAction):
            tools = self.subject.tools
            if not tools:
                raise ConfigurationError(
                    f"{self.subject.name} does not say what its actions are. Name the class in its bases, as in "
                    "Environment[MyAction, MyObservation, MyState], pass action_cls, or mark methods as tools."
                )
            tool = generator.choice(tools)
            return CallToolAction(tool_name=tool.name, arguments=sample(tool.input_schema, generator))
        schema = cls.model_json_schema()
        schema["properties"].pop("metadata", None)
        for _ in range(_ATTEMPTS):
            value = sample(schema, generator)
            try:
                return cls.model_validate(value)
            except ValidationError:
                continue
        raise ConfigurationError(
            f"No valid {cls.__name__} could be drawn from its JSON Schema. Give its fields examples, as in "
            "Field(examples=[...]), or pass sample_actions."
        )

    def _reset(self, environment: AnyEnvironment, seed: int, episode_id: str, hooks: Hooks) -> Moment:
        hook = self.subject.served("reset") if hooks == "served" else "reset"
        arguments = {"seed": seed, "episode_id": episode_id, **self.reset_arguments}
        accepted = self.subject.accepted(hook)
        if accepted is not None:
            arguments = {name: value for name, value in arguments.items() if name in accepted}
        call = f"{hook}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
        return self._moment(environment, "reset", call, partial(getattr(environment, hook), **arguments))

    def _step(self, environment: AnyEnvironment, action: Action, hooks: Hooks) -> Moment:
        if isinstance(action, CallToolAction) and not (
            self.subject.action_cls and isinstance(action, self.subject.action_cls)
        ):
            call = f"{action.tool_name}({', '.join(f'{k}={v!r}' for k, v in action.arguments.items())})"
            run = partial(self.call_tool, environment, action.tool_name, action.arguments)
        else:
            hook = self.subject.served("step") if hooks == "served" else "step"
            call = f"{hook}({action.model_dump(exclude={'metadata'})})"
            run = partial(getattr(environment, hook), action)
        return self._moment(environment, "step", call, run)

    def _moment(
        self, environment: AnyEnvironment, phase: Literal["reset", "step"], call: str, run: Callable[[], Any]
    ) -> Moment:
        def finished() -> Any:
            result = run()
            return self._awaited(result) if inspect.isawaitable(result) else result

        result, error = attempt(finished)
        state, state_error = attempt(lambda: environment.state)
        state = state if state_error is None else state_error
        return Moment(_short(call), phase, result, error, state, _as_text(result, error))

    def _awaited(self, awaitable: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await awaitable

        return self.portal.call(wait)


def _as_text(result: object, error: Exception | None) -> str:
    if error is not None:
        return f"raised {error!r}"
    if not isinstance(result, Observation):
        return repr(result)
    # Metadata is left out: it may hold times and names.
    content = {name: value for name, value in result if name != "metadata"}
    try:
        return encode(content).decode()
    except TypeError:
        return repr(content)


def _short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:157]}..."
