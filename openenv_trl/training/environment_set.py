"""All environments of a run behind one call: a pool of sessions and an engine for each, and one model for all.

The episodes of all environments run at the same time, and whichever are ready share a batch of the policy, so that a
second environment costs no second round of generations.
"""

from __future__ import annotations

import copy
import itertools
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from openenv_trl.client import fetch_health, fetch_promises, fetch_schema
from openenv_trl.errors import ConfigurationError, OpenEnvError
from openenv_trl.providers.replica_pool import ReplicaPool
from openenv_trl.rollout import (
    RolloutEngine,
    RolloutLimits,
    RolloutStrategies,
    SamplingParameters,
    Task,
    Trajectory,
)
from openenv_trl.rollout.batching import BatchedPolicy, BatchSettings
from openenv_trl.rollout.bias_report import BiasReport, bias_report
from openenv_trl.rollout.first_error import first_error_alone
from openenv_trl.rollout.held_open import HeldOpen
from openenv_trl.rollout.metrics import rollout_metrics
from openenv_trl.rollout.observer import RolloutObserver, observed
from openenv_trl.rollout.play import asking, open_pool
from openenv_trl.rollout.policy import Policy
from openenv_trl.rollout.refusals import NothingButRefusals
from openenv_trl.rollout.servers import most_sessions
from openenv_trl.rollout.session import SessionSource
from openenv_trl.training.environments import ALONE, EnvironmentSpec
from openenv_trl.training.observed_part import ObservedPart
from openenv_trl.training.server_check import check_servers
from openenv_trl.training.tasks import environment_of
from openenv_trl.types import Tool

logger = logging.getLogger(__name__)


@dataclass
class _Environment:
    name: str
    spec: EnvironmentSpec
    limits: RolloutLimits
    sessions_per_server: int
    pool: SessionSource | None = None
    engine: RolloutEngine | None = None


@dataclass(frozen=True)
class BatchResult:
    """What a batch brought back.

    Attributes:
        trajectories: One for each task, in the tasks' order.
        metrics: Numbers of the whole batch; those of an environment of several have ``<name>/`` before theirs.
        report: What was kept and dropped, of all environments together.
        refused: Of each environment that refused all its tasks, and has never played one here, what it says.
    """

    trajectories: list[Trajectory]
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    report: BiasReport | None = None
    refused: Mapping[str, ConfigurationError] = field(default_factory=dict[str, ConfigurationError])


class EnvironmentSet:
    """The environments of a run. It belongs to one event loop.

    Args:
        specs: Of each environment, by name.
        limits: Of the episodes of those that have none of their own.
        sessions_per_server: For those that have none of their own.
        headers: For those that have none of their own.
        actions: For an environment that is the only one: how the model acts.
        strategies: For those that have none of their own.
        batching: When a batch goes to the policy.
    """

    def __init__(
        self,
        specs: Mapping[str, EnvironmentSpec],
        *,
        limits: RolloutLimits,
        sessions_per_server: int,
        headers: dict[str, str] | None = None,
        actions: Any = None,
        strategies: RolloutStrategies | None = None,
        batching: BatchSettings | None = None,
    ) -> None:
        self._environments = {
            name: _Environment(
                name,
                spec.model_copy(
                    update={
                        "headers": headers if spec.headers is None else spec.headers,
                        "actions": actions if spec.actions is None else spec.actions,
                        "strategies": spec.strategies or strategies,
                    }
                ),
                spec.limits or limits,
                spec.sessions_per_server or sessions_per_server,
            )
            for name, spec in specs.items()
        }
        self._batching = batching or BatchSettings()
        self._exit = AsyncExitStack()
        self._engines_are_for: tuple[Any, ...] = ()

    def unopened(self) -> EnvironmentSet:
        """The same environments, for another event loop: without pools and engines."""
        other = copy.copy(self)
        other._environments = {n: replace(e, pool=None, engine=None) for n, e in self._environments.items()}
        other._exit, other._engines_are_for = AsyncExitStack(), ()
        return other

    @property
    def engines(self) -> dict[str, RolloutEngine]:
        """The engine of each environment that has one yet."""
        return {name: e.engine for name, e in self._environments.items() if e.engine is not None}

    @property
    def played(self) -> frozenset[str]:
        """The environments that have ever played a task here."""
        return frozenset(name for name, engine in self.engines.items() if engine.has_played)

    async def open(self) -> None:
        """Check the servers, and make the pools. One server of each environment that answers is enough.

        Raises:
            OpenEnvError: No server of an environment answers.
        """
        for environment in self._environments.values():
            spec = environment.spec
            if environment.pool is None:
                if spec.provided is None:
                    await check_servers(spec.base_urls, spec.headers)
                opened = open_pool(
                    spec.servers, sessions_per_server=environment.sessions_per_server, headers=spec.headers
                )
                environment.pool = await self._exit.enter_async_context(HeldOpen(opened))

    async def aclose(self) -> None:
        """Close all sessions."""
        await self._exit.aclose()
        for environment in self._environments.values():
            environment.pool = environment.engine = None
        self._engines_are_for = ()

    def use(self, tokenizer: Any, max_completion_tokens: int, template_kwargs: Mapping[str, Any]) -> None:
        """Make the engines for a tokenizer; those that there are stay where nothing is different.

        Args:
            tokenizer: With a chat template.
            max_completion_tokens: Of an episode whose limits do not say, and of any at most.
            template_kwargs: More arguments of the chat template.
        """
        wanted = (tokenizer, max_completion_tokens, dict(template_kwargs))
        if self._engines_are_for == wanted:
            return
        for environment in self._environments.values():
            limits, spec = environment.limits, environment.spec
            if (
                "max_completion_tokens" not in limits.model_fields_set
                or max_completion_tokens < limits.max_completion_tokens
            ):
                limits = limits.model_copy(update={"max_completion_tokens": max_completion_tokens})
            assert environment.pool is not None, "opened before it is used"
            environment.engine = RolloutEngine(
                environment.pool,
                tokenizer,
                actions=spec.actions,
                limits=limits,
                strategies=spec.strategies,
                max_concurrent_episodes=most_sessions(spec.servers, environment.sessions_per_server),
                fetch_schema=asking(fetch_schema, environment.pool, spec.headers),
                fetch_promises=asking(fetch_promises, environment.pool, spec.headers),
                chat_template_kwargs=template_kwargs,
            )
        self._engines_are_for = wanted

    async def run(self, tasks: Sequence[Task], policy: Policy, observer: RolloutObserver | None = None) -> BatchResult:
        """Play one episode for each task, all at once.

        Args:
            tasks: Each with the name of its environment in its metadata, where there are several.
            policy: Who plays, in all of them.
            observer: Hears of all episodes, by their task's place.

        Raises:
            OpenEnvError: As `RolloutEngine.run`; the episodes of all environments are then cancelled. Refused tasks are
                no such error: another process may have played others of their environment.
        """
        rows: dict[str, list[int]] = {}
        for row, task in enumerate(tasks):
            rows.setdefault(environment_of(task), []).append(row)
        shared = BatchedPolicy(policy, SamplingParameters(), self._batching)
        played: dict[int, Trajectory] = {}
        left_out: list[Trajectory] = []
        counts: Counter[str] = Counter()
        further = itertools.count(len(tasks))
        refused: dict[str, ConfigurationError] = {}

        async def play(name: str) -> None:
            engine = self._environments[name].engine
            assert engine is not None, "made before it plays"
            part = None if observer is None else ObservedPart(observer, rows[name], further)
            own = [tasks[row] for row in rows[name]]
            trajectories: Sequence[Trajectory]
            try:
                trajectories = await engine.run(own, shared, observer=part)
            except NothingButRefusals as error:
                refused[name], trajectories = error, error.trajectories
            for row, trajectory in zip(rows[name], trajectories, strict=True):
                trajectory.environment = name
                played[row] = trajectory
            if engine.last_report is not None:
                for trajectory in engine.last_report.left_out:
                    trajectory.environment = name
                    left_out.append(trajectory)
            counts.update(engine.counts)

        with observed(observer, len(tasks)), first_error_alone():
            async with anyio.create_task_group() as service:
                service.start_soon(shared.serve)
                async with anyio.create_task_group() as group:
                    for name in rows:
                        group.start_soon(play, name)
                service.cancel_scope.cancel()
        trajectories = [played[row] for row in range(len(tasks))]
        tools = {name: [tool.name for tool in self._tools_of(name)] for name in rows}
        every = list(dict.fromkeys(itertools.chain.from_iterable(tools.values())))
        metrics = _numbers(trajectories, shared.batch_sizes, every)
        for name, own_rows in rows.items():
            if name != ALONE:
                numbers = _numbers([played[row] for row in own_rows], None, tools[name])
                metrics |= {f"{name}/{key}": value for key, value in numbers.items()}
            pool = self._environments[name].pool
            if isinstance(pool, ReplicaPool):
                metrics |= pool.metrics().numbers("pool/" if name == ALONE else f"{name}/pool/")
        report = bias_report(trajectories, left_out)
        metrics |= report.metrics() | {key: float(count) for key, count in counts.items()}
        return BatchResult(trajectories, metrics, report, refused)

    def _tools_of(self, name: str) -> Sequence[Tool]:
        engine = self._environments[name].engine
        assert engine is not None, "it has played"
        return engine.actions.tools

    async def server_states(self) -> str:
        """What each server says of itself at this moment, in words."""
        states: list[str] = []

        async def ask(environment: _Environment, url: str) -> None:
            try:
                health = await fetch_health(url, timeout_s=5.0, headers=environment.spec.headers)
                states.append(f"{url} is {health['status']}")
            except OpenEnvError as error:
                states.append(f"{url} does not answer ({error})")

        async with anyio.create_task_group() as group:
            for environment in self._environments.values():
                if environment.spec.provided is not None:
                    states.append(f"{environment.spec.provided}: {_state_of(environment.pool)}")
                for url in environment.spec.base_urls:
                    group.start_soon(ask, environment, url)
        return "; ".join(sorted(states))


def _state_of(pool: SessionSource | None) -> str:
    if not isinstance(pool, ReplicaPool):
        return "not started"
    counts = pool.metrics()
    return (
        f"{counts.replicas_ready} replicas ready, {counts.replicas_starting} starting, {counts.deaths} have died, "
        f"{counts.start_failures} starts failed"
    )


def _numbers(
    trajectories: Sequence[Trajectory], batch_sizes: Sequence[int] | None, tools: Sequence[str]
) -> dict[str, float]:
    numbers = rollout_metrics(trajectories, batch_sizes=batch_sizes or (), tools=tools)
    if batch_sizes is None:
        for name in ("batches", "batch_size"):
            numbers.pop(name, None)
    if all(trajectory.reward is None for trajectory in trajectories):
        numbers.pop("reward", None)  # a mean of nothing is not 0.0
    return numbers
