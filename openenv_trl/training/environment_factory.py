"""``environment_factory`` for TRL's ``GRPOTrainer``: a class made of what an environment server offers.

The trainer plays the episodes in its own loop: it resets the environments of a batch, lets the model write, calls the
tools, and asks for the rewards. What it calls is made here of the server's tools, or of its action schema.

With TRL's own trainer these calls are made one after another. `EnvironmentGRPOTrainer` has them made side by side.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from openenv_trl.client.inquiry import fetch_capacity
from openenv_trl.errors import ConfigurationError, OpenEnvError
from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.rollout.servers import most_sessions
from openenv_trl.training.action_tools import ActionTools
from openenv_trl.training.environment_batch import EnvironmentBatch, Score
from openenv_trl.training.environment_class import FactoryEnvironment, environment_class
from openenv_trl.training.environment_sessions import EnvironmentSessions, Servers, SessionSettings
from openenv_trl.training.skipped_steps import SkippedSteps
from openenv_trl.training.trl_version import check_trl_version


class EnvironmentFactory:
    """Makes one environment for each rollout. Pass it to ``GRPOTrainer(environment_factory=...)``.

    Made by `make_environment_factory`. Between the batches of a training its sessions wait for the next. `rest` closes
    them, which `EnvironmentGRPOTrainer` and the ``callback`` do when training ends; another batch opens new ones.
    `close`, the end of the ``with`` block or of the interpreter ends it for good.

    Args:
        sessions: What the environments share.
        batch: Those that are played now.
        made: Their class.
        capacity: Sessions that the servers allow, as they say; None if they do not.
    """

    def __init__(
        self,
        sessions: EnvironmentSessions,
        batch: EnvironmentBatch,
        made: type[FactoryEnvironment],
        capacity: int | None,
    ) -> None:
        self.environment_class = made
        self.sessions = sessions
        self.capacity = capacity
        self._batch = batch
        self.__name__ = made.__name__

    @property
    def metrics(self) -> dict[str, float]:
        """The last batch's numbers: share of failed episodes, mean steps, seconds in the environment, ..."""
        return self._batch.metrics

    def before_call(self, start: Callable[[], None] | None) -> None:
        """What is called where a trainer calls a tool that was not started: it may start it, and others."""
        self._batch.start_calls = start

    def take_metrics(self) -> dict[str, float]:
        """The last batch's numbers, once: empty until another batch has ended."""
        return self._batch.take_metrics()

    @property
    def callback(self) -> Any:
        """A ``TrainerCallback`` that closes the sessions when training ends: ``GRPOTrainer(callbacks=[...])``."""
        from openenv_trl.training.closing import CloseSessions

        return CloseSessions([self])

    def __call__(self) -> FactoryEnvironment:
        """An environment for one rollout, as TRL asks for it. Cheap: its session is opened with its first reset."""
        return self.environment_class()

    def rest(self) -> None:
        """Close all sessions until the next batch, which opens new ones."""
        self.sessions.rest()

    def close(self) -> None:
        """Close all sessions for good, and stop the servers that were started for them."""
        self.sessions.close()

    def __enter__(self) -> EnvironmentFactory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EnvironmentFactories(dict[str, EnvironmentFactory]):
    """Factories of several environments by name, as ``GRPOTrainer(environment_factory=...)`` takes them.

    Each row of the dataset names its environment in the column ``environment``.
    """

    @property
    def callback(self) -> Any:
        """A ``TrainerCallback`` that closes all sessions when training ends."""
        from openenv_trl.training.closing import CloseSessions

        return CloseSessions(list(self.values()))

    def rest(self) -> None:
        """Close the sessions of all until they are needed again."""
        for factory in self.values():
            factory.rest()

    def close(self) -> None:
        """Close the sessions of all for good."""
        for factory in self.values():
            factory.close()

    def __enter__(self) -> EnvironmentFactories:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_environment_factory(
    servers: Servers,
    *,
    name: str = "environment_reward",
    sessions_per_server: int = 64,
    limits: RolloutLimits | None = None,
    tools: ActionTools | None = None,
    columns: Sequence[str] | None = None,
    separator: str = "\n\n",
    unfinished: float = 0.0,
    score: Score | None = None,
    score_timeout_s: float = 60.0,
    max_failed_fraction: float = 1.0,
    max_skipped_steps: int = 3,
    tokenizer: Any = None,
    headers: Mapping[str, str] | None = None,
) -> EnvironmentFactory:
    """Make an ``environment_factory`` for TRL's ``GRPOTrainer`` (1.15 or 1.16), of an environment that is served.

    The environment's tools become methods; one that offers none gets a method for each type of its action, or one
    "act". ``done`` ends the episode: later calls are answered with a fixed text, and never reach the server. What the
    model calls wrongly it is told, as text. What breaks (a lost connection, a deadline, no free session) is tried
    again in a fresh session in the reset; in a step it ends the episode, whose reward is then None: TRL leaves it out.

    Args:
        servers: Addresses of servers of one environment, a provider that starts them, or any source of sessions.
        name: The environment's name, under which TRL logs its reward.
        sessions_per_server: Sessions to hold open on each server at most.
        limits: Deadlines and tries of an episode. Turns and tokens are the trainer's own arguments.
        tools: What the model can call; asked of the server if None.
        columns: The dataset's columns that go to ``reset``; all but ``prompt`` and ``completion`` if None.
        separator: What stands between the prompt's last message and the first observation.
        unfinished: Added to the reward where the model left the episode without an end.
        score: The reward of an episode, from its `EpisodeProgress`, sync or async; all of a batch side by side. The
            sum of the environment's own rewards if None. Where it raises or is late, the episode is left out.
        score_timeout_s: Seconds for ``score``.
        max_failed_fraction: Learn nothing from a batch of which more than this part failed after all tries, from 0 to
            1; nor from one of which all did. Failed episodes are otherwise left out alone.
        max_skipped_steps: Such batches in a row that are passed over; one more ends the training, with the reasons.
        tokenizer: The model's. With it, no text of the environment becomes a control token, and the chat template is
            checked at once. `EnvironmentGRPOTrainer` passes its own.
        headers: HTTP headers of every connection, such as an authorization.

    Returns:
        The factory. Close it when training has ended, or use it as a context manager.

    Raises:
        ConfigurationError: Settings that cannot work, or a TRL of another version: the message says what to change.
        OpenEnvError: No server answers.

    Example:
        >>> with make_environment_factory("http://localhost:8000") as factory:
        ...     trainer = EnvironmentGRPOTrainer(
        ...         model="Qwen/Qwen3-0.6B", environment_factory=factory, train_dataset=dataset, args=GRPOConfig(...)
        ...     )
        ...     trainer.train()
    """
    check_trl_version()
    skipped = SkippedSteps(max_failed_fraction=max_failed_fraction, max_skipped_steps=max_skipped_steps)
    if not name.isidentifier():
        raise ConfigurationError(f"name={name!r} must be a Python identifier: it becomes the name of a class.")
    settings = SessionSettings(sessions_per_server, limits or RolloutLimits(), headers)
    sessions = EnvironmentSessions(servers, settings, tokenizer=tokenizer, tools=tools)
    try:
        capacity = sessions.loop.call(session_capacity, sessions)
        batch = EnvironmentBatch(
            sessions,
            score=score,
            score_timeout_s=score_timeout_s,
            unfinished=unfinished,
            skipped=skipped,
            capacity=capacity,
        )
        if not sessions.tools.tools:
            raise ConfigurationError("The environment offers nothing that a model could call: give tools.")
        made = environment_class(name, sessions, batch, columns=columns, separator=separator)
    except BaseException:
        sessions.close()
        raise
    return EnvironmentFactory(sessions, batch, made, capacity)


def make_environment_factories(servers: Mapping[str, Servers], **settings: Any) -> EnvironmentFactories:
    """Make the factories of several environments for one run.

    Args:
        servers: For each name in the dataset's column ``environment``, the servers of that environment.
        **settings: As `make_environment_factory` takes them, for all. The ``name`` of each is made of its key.

    Example:
        >>> factories = make_environment_factories({"cards": "http://localhost:8000", "code": "http://localhost:8001"})
    """
    if "name" in settings:
        raise ConfigurationError("make_environment_factories names each environment by its key; leave name out.")
    made = EnvironmentFactories()
    names = [re.sub(r"\W|^(?=\d)", "_", key) for key in servers]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"The names {list(servers)} are alike where a class is named: {names}. Change one.")
    try:
        for key, name in zip(servers, names, strict=True):
            made[key] = make_environment_factory(servers[key], name=name, **settings)
    except BaseException:
        made.close()
        raise
    return made


async def session_capacity(sessions: EnvironmentSessions) -> int | None:
    """How many sessions there can be at once, as far as the servers tell; None where one of them does not."""
    if sessions.provided is not None:
        return most_sessions(sessions.provided, sessions.settings.sessions_per_server)
    if not sessions.base_urls:
        return None
    most = sessions.settings.sessions_per_server
    allowed: list[int | None] = []

    async def ask(url: str) -> None:
        try:
            told: Any = (await fetch_capacity(url, headers=sessions.settings.headers)).get("max_sessions")
            allowed.append(min(int(told), most) if isinstance(told, int) else None)
        except OpenEnvError:
            allowed.append(None)

    async with anyio.create_task_group() as group:
        for url in sessions.base_urls:
            group.start_soon(ask, url)
    known = [number for number in allowed if number is not None]
    return sum(known) if len(known) == len(allowed) else None
