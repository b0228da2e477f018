"""A reward function for plain generation: what the model wrote is done in an environment, which rewards it.

For tasks of one message: write a program, answer, make a move. The completions of a batch are executed all at once,
each in a fresh session. The model sees nothing of what comes of it: for tasks of several turns there are
``rollout_func`` and ``environment_factory``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.training.action_tools import ActionTools
from openenv_trl.training.completion_actions import CalledTool, ParseActions, TextAction, actions_in
from openenv_trl.training.environment_batch import batch_metrics, judge
from openenv_trl.training.environment_episode import EnvironmentEpisode
from openenv_trl.training.environment_sessions import EnvironmentSessions, Servers, SessionSettings
from openenv_trl.training.episode_progress import EpisodeProgress
from openenv_trl.training.skipped_steps import SkippedSteps

_NOT_COLUMNS = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments"}


class EnvironmentRewardFunction:
    """Rewards completions by executing them. Made by `environment_reward_func`; TRL logs it by its ``__name__``.

    Args:
        name: What TRL logs it by.
        sessions: Where the environment is.
        parse: Reads actions in text.
        columns: The dataset's columns that go to ``reset``; all if None.
        invalid_action_reward: The reward of what could not be done.
        skipped: Decides about batches of which much failed.
    """

    def __init__(
        self,
        name: str,
        sessions: EnvironmentSessions,
        *,
        parse: ParseActions | None,
        columns: Sequence[str] | None,
        invalid_action_reward: float | None,
        skipped: SkippedSteps,
    ) -> None:
        self.__name__ = name
        self.sessions = sessions
        self.metrics: dict[str, float] = {}
        """The last batch's numbers."""
        self._parse = parse
        self._columns = columns
        self._invalid_action_reward = invalid_action_reward
        self._skipped = skipped

    async def __call__(self, *, completions: Sequence[Any], **named: Any) -> list[float | None]:
        """The reward of each completion, as TRL asks for it.

        Args:
            completions: Strings or lists of messages, one a row.
            **named: The dataset's columns, as lists, one value a row; and TRL's own arguments.

        Returns:
            For each completion a finite number; or None where the environment failed, or gave no reward.

        Raises:
            ConfigurationError: Something of the user's that cannot work: the message says what to change.
            RolloutFailureError: Too many batches in a row failed.
        """
        rows = self._rows(len(completions), named)
        actions = [actions_in(completion, self._parse) for completion in completions]
        jobs = [self._playing(row, wanted) for row, wanted in zip(rows, actions, strict=True)]
        futures = self.sessions.submit(jobs)
        played = await asyncio.gather(*(asyncio.wrap_future(future) for future in futures))
        self.sessions.raise_mistake()
        rewards = [self._reward(progress) for progress in played]
        self._report(played, named)
        is_sound = judge(list(played), self._skipped, self.sessions)
        return rewards if is_sound else [None] * len(rewards)

    def rest(self) -> None:
        """Close all sessions until the next batch, which opens new ones."""
        self.sessions.rest()

    def close(self) -> None:
        """Close all sessions for good, and stop the servers that were started for them."""
        self.sessions.close()

    def __enter__(self) -> EnvironmentRewardFunction:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"EnvironmentRewardFunction({self.__name__!r})"

    def _rows(self, count: int, named: Mapping[str, Any]) -> list[dict[str, Any]]:
        columns = {name: values for name, values in named.items() if name not in _NOT_COLUMNS}
        if self._columns is not None:
            missing = [name for name in self._columns if name not in columns]
            if missing:
                raise ConfigurationError(f"The dataset has no columns {missing}; it has {sorted(columns)}.")
            columns = {name: columns[name] for name in self._columns}
        for name, values in columns.items():
            if not isinstance(values, Sequence) or len(cast("Sequence[Any]", values)) != count:
                raise ConfigurationError(f"The column '{name}' must be a list of {count} values, one a completion.")
        return [{name: values[index] for name, values in columns.items()} for index in range(count)]

    def _playing(
        self, row: dict[str, Any], actions: Sequence[CalledTool | TextAction]
    ) -> Callable[[], Awaitable[EpisodeProgress]]:
        async def play() -> EpisodeProgress:
            episode = EnvironmentEpisode(self.sessions)
            if not actions:
                episode.progress.refused("no action")  # nothing to do, and no session needed for it
                return episode.progress
            await episode.begin_and_play(row, [_doing(each) for each in actions])
            return episode.progress

        return play

    def _reward(self, progress: EpisodeProgress) -> float | None:
        if progress.has_failed:
            return None
        given = [value for value in progress.rewards if value is not None]
        if not progress.invalid_actions:
            return sum(given) if given else None
        return None if self._invalid_action_reward is None else sum(given) + self._invalid_action_reward

    def _report(self, played: Sequence[EpisodeProgress], named: Mapping[str, Any]) -> None:
        self.metrics = batch_metrics(list(played))
        log_metric, log_extra = named.get("log_metric"), named.get("log_extra")
        if log_metric is not None:
            for name, value in self.metrics.items():
                log_metric(f"{self.__name__}/{name}", value)
        if log_extra is not None:
            ends = [p.error or ("invalid action" if p.invalid_actions else "executed") for p in played]
            log_extra(f"{self.__name__}_end", ends)


def environment_reward_func(
    servers: Servers,
    *,
    name: str = "environment_reward",
    parse: ParseActions | None = None,
    columns: Sequence[str] | None = None,
    invalid_action_reward: float | None = -1.0,
    sessions_per_server: int = 64,
    limits: RolloutLimits | None = None,
    tools: ActionTools | None = None,
    max_failed_fraction: float = 1.0,
    max_skipped_steps: int = 3,
    headers: Mapping[str, str] | None = None,
) -> EnvironmentRewardFunction:
    """Make a reward function that executes completions in an environment: ``GRPOTrainer(reward_funcs=[...])``.

    All completions of a batch are executed at once, as far as there are sessions; who finds none waits. Several
    actions of one completion are taken in order, until the environment is done. What breaks is tried again from the
    start in a fresh session; if it still fails, the reward is None, and TRL leaves the row out.

    Args:
        servers: Addresses of servers of one environment, a provider that starts them, or any source of sessions.
        name: What TRL logs the reward by.
        parse: Makes actions of text. Without it, the completions' tool calls are the actions.
        columns: The dataset's columns that go to ``reset``; all but prompt and completion if None.
        invalid_action_reward: Added to what was earned until then, where an action is unknown, does not fit its
            schema, or is missing. None leaves such completions out. By default as bad as losing in most games: a model
            would otherwise learn that to do nothing is better than to lose.
        sessions_per_server: Sessions to hold open on each server at most.
        limits: Deadlines of each phase, and tries.
        tools: What the model can call; asked of the server if None.
        max_failed_fraction: Learn nothing from a batch of which more than this part failed after all tries, from 0 to
            1; nor from one of which all did. Failed episodes are otherwise left out alone.
        max_skipped_steps: Such batches in a row that are passed over; one more ends the training, with the reasons.
        headers: HTTP headers of every connection, such as an authorization.

    Returns:
        The function. Close it when training has ended, or use it as a context manager.

    Raises:
        ConfigurationError: Settings that cannot work: the message says what to change.
        OpenEnvError: No server answers.

    Example:
        >>> with environment_reward_func("http://localhost:8000", parse=lambda text: {"code": text}) as reward:
        ...     GRPOTrainer(model=model, reward_funcs=[reward], train_dataset=dataset).train()
    """
    skipped = SkippedSteps(max_failed_fraction=max_failed_fraction, max_skipped_steps=max_skipped_steps)
    if parse is not None and tools is None:
        tools = ActionTools.of_text()
    settings = SessionSettings(sessions_per_server, limits or RolloutLimits(), headers)
    return EnvironmentRewardFunction(
        name,
        EnvironmentSessions(servers, settings, tools=tools),
        parse=parse,
        columns=columns,
        invalid_action_reward=invalid_action_reward,
        skipped=skipped,
    )


def _doing(action: CalledTool | TextAction) -> Callable[[EnvironmentEpisode], Awaitable[str]]:
    if isinstance(action, TextAction):
        return lambda episode: episode.step(action.action)
    return lambda episode: episode.act(action.name, action.arguments)
