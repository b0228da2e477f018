"""The class that a trainer's ``environment_factory`` gives: an environment's tools as methods, and nothing else.

TRL calls ``reset(**row)``, the tools, and ``get_reward()``, each one after another over the rollouts of a batch. Every
other public function of the class would be offered to the model as a tool, so there is none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.tool_schema import tool_definition
from openenv_trl.training.background import closed_in_call
from openenv_trl.training.environment_batch import EnvironmentBatch
from openenv_trl.training.environment_episode import EnvironmentEpisode
from openenv_trl.training.environment_sessions import EnvironmentSessions
from openenv_trl.training.episode_progress import OVER_TEXT, EpisodeProgress
from openenv_trl.training.started_calls import StartedCall, StartedCalls
from openenv_trl.training.tool_functions import ToolDefinition, attribute_name, renders_exactly, tool_function

_NOT_FOR_RESET = ("prompt", "completion")


class FactoryEnvironment:
    """One rollout's environment. Subclasses, made by `environment_class`, have the tools."""

    _sessions: EnvironmentSessions
    _batch: EnvironmentBatch
    _columns: Sequence[str] | None = None
    _separator: str = "\n\n"
    _definitions: Mapping[str, Mapping[str, Any]] = {}

    def __init__(self) -> None:
        self._episode = EnvironmentEpisode(self._sessions)
        self._calls = StartedCalls()
        self._begun: tuple[dict[str, Any], Future[str | None]] | None = None
        self._has_no_room = False
        self._batch.joined(self)
        for attribute, definition in self._definitions.items():
            # Found on the class as a function, and taken from the instance as this: the schema, and callable.
            self.__dict__[attribute] = ToolDefinition(definition, getattr(self, attribute))

    def reset(self, **row: Any) -> str | None:
        """Begin an episode.

        Args:
            **row: The dataset's row, as TRL gives it. Its columns go to the environment's ``reset``.

        Returns:
            What TRL appends to the prompt's last message: the first observation; None where there is none.

        Raises:
            ConfigurationError: Something of the user's that cannot work: the message says what to change.
        """
        self._sessions.raise_mistake()
        self._forget_calls()
        begun, self._begun = self._begun, None
        if begun is None or not _same_values(begun[0], row):
            begun = (row, self._reset_soon([(self, row, None)])[0])
        observation = begun[1].result()
        given = self._progress.arguments
        self._batch.began(self, given.get("seed", given.get("task_seed")))
        if not observation:
            return None
        return f"{self._separator}{observation}" if _says_something(row.get("prompt")) else observation

    def get_reward(self) -> float | None:
        """The reward of the episode, now that the model calls no more; None where there is nothing to learn from.

        Raises:
            RolloutFailureError: Too many batches in a row failed.
            ConfigurationError: A mistake of the user's was found while the model was playing.
        """
        self._sessions.raise_mistake()
        return self._batch.reward_of(self)

    @property
    def _progress(self) -> EpisodeProgress:
        return self._episode.progress

    @classmethod
    def _reset_soon(
        cls, resets: Sequence[tuple[FactoryEnvironment, Mapping[str, Any], int | None]]
    ) -> list[Future[str | None]]:
        """Start the resets of environments of this class, side by side.

        Args:
            resets: Each environment with its row, and the seed where the row has none.
        """
        jobs: list[Callable[[], Awaitable[str | None]]] = []
        for environment, row, seed in resets:
            arguments = environment._arguments_of(row)
            if seed is not None and arguments.get("seed") is None:
                arguments["seed"] = seed
            jobs.append(_beginning(environment._episode, arguments))
        return cls._sessions.submit(jobs)

    def _expect_reset(self, row: dict[str, Any], begun: Future[str | None]) -> None:
        """The reset with this row was started."""
        self._forget_calls()
        self._begun = (row, begun)

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        """A tool is called by the trainer's loop."""
        answer = self._calls.take(name, arguments)
        if answer is None and self._batch.start_calls is not None:
            self._batch.start_calls()
            answer = self._calls.take(name, arguments)
        if self._has_no_room:
            return OVER_TEXT
        if answer is None:
            self._forget_calls()
            answer = self._sessions.submit([_acting(self._episode, name, arguments)])[0]
        return answer.result()

    def _call_soon(self, functions: Sequence[Mapping[str, Any]]) -> Callable[[], Awaitable[None]] | None:
        """The calls of one turn, in order, as a job to be started; what comes of them waits for the loop's own.

        Args:
            functions: Each with a ``name`` and ``arguments``. Tools that are not the environment's are left out.
        """
        known = {tool.name for tool in self._sessions.tools.tools}
        started = [
            StartedCall(function["name"], function["arguments"], Future())
            for function in functions
            if function.get("name") in known and isinstance(function.get("arguments"), dict)
        ]
        self._calls.start(started)
        return _acting_in_turn(self._episode, started) if started else None

    def _have_no_room(self) -> None:
        """No answer fits any more: what this turn calls need not be done, as the trainer drops what came of it."""
        self._has_no_room = True

    def _forget_calls(self) -> None:
        self._has_no_room = False
        if self._calls.forget():
            text = "step: calls were started that the trainer did not make; the environment is ahead of the model"
            self._sessions.submit([_spoiling(self._episode, text)])[0].result()

    def _arguments_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(row.get("prompt"), str):
            raise ConfigurationError(
                "The dataset's prompts are strings, and an environment needs conversations: write each prompt as "
                "[{'role': 'user', 'content': ...}]."
            )
        if self._columns is None:
            return {name: value for name, value in row.items() if name not in _NOT_FOR_RESET}
        missing = [name for name in self._columns if name not in row]
        if missing:
            raise ConfigurationError(f"The dataset has no columns {missing}; it has {sorted(row)}.")
        return {name: row[name] for name in self._columns}


def environment_class(
    name: str,
    sessions: EnvironmentSessions,
    batch: EnvironmentBatch,
    *,
    columns: Sequence[str] | None = None,
    separator: str = "\n\n",
) -> type[FactoryEnvironment]:
    """The class for one environment.

    Args:
        name: The class's name, under which TRL logs its reward.
        sessions: What its instances share.
        batch: What its instances of one batch share.
        columns: The dataset's columns that go to ``reset``; all but the prompt if None.
        separator: What stands between the prompt and the first observation.
    """
    tools = sessions.tools.tools
    namespace: dict[str, Any] = {
        "__doc__": f"The environment '{name}', as a trainer's rollout plays it.",
        "__module__": __name__,
        "_sessions": sessions,
        "_batch": batch,
        "_columns": columns,
        "_separator": separator,
    }
    attributes = {attribute_name(tool): tool for tool in tools}
    if len(attributes) < len(tools):
        raise ConfigurationError(f"Two tools have names that a class cannot tell apart: {[t.name for t in tools]}.")
    for attribute, tool in attributes.items():
        namespace[attribute] = tool_function(tool, _call_of)
    made = cast("type[FactoryEnvironment]", type(name, (FactoryEnvironment,), namespace))
    plain = object.__new__(made)
    made._definitions = {  # pyright: ignore[reportPrivateUsage]
        attribute: tool_definition(tool)
        for attribute, tool in attributes.items()
        if not renders_exactly(tool, getattr(plain, attribute))
    }
    return made


def _call_of(environment: FactoryEnvironment, name: str, arguments: dict[str, Any]) -> str:
    return environment._call(name, arguments)  # pyright: ignore[reportPrivateUsage]


def _beginning(episode: EnvironmentEpisode, arguments: dict[str, Any]) -> Callable[[], Awaitable[str | None]]:
    return lambda: episode.begin(arguments)


def _acting(episode: EnvironmentEpisode, name: str, arguments: dict[str, Any]) -> Callable[[], Awaitable[str]]:
    return lambda: episode.act(name, arguments)


def _acting_in_turn(episode: EnvironmentEpisode, started: Sequence[StartedCall]) -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        for call in started:
            if not call.answer.set_running_or_notify_cancel():
                continue  # it was dropped
            try:
                text = await episode.act(call.name, call.arguments)
            except BaseException as error:
                # Also where the loop ends: whoever waits in another thread must not wait for ever.
                call.answer.set_exception(error if isinstance(error, Exception) else closed_in_call())
                for later in started[started.index(call) + 1 :]:
                    later.answer.cancel()
                raise
            call.answer.set_result(text)

    return act


def _spoiling(episode: EnvironmentEpisode, why: str) -> Callable[[], Awaitable[None]]:
    async def spoil() -> None:
        episode.spoil(why)

    return spoil


def _same_values(started: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether these are the very values: equality would compare tensors and images."""
    return started.keys() == row.keys() and all(started[name] is row[name] for name in row)


def _says_something(prompt: Any) -> bool:
    if not isinstance(prompt, list) or not prompt:
        return False
    last: Any = cast("list[Any]", prompt)[-1]
    return isinstance(last, Mapping) and bool(cast("Mapping[str, Any]", last).get("content"))
