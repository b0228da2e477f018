"""The worker's event loop: begins groups while the gate allows, plays and scores them, and hands over their rows.

Runs in the worker's thread. What decides is elsewhere and pure: `GroupGate`, `Health`, `OutageWatch`; the trainer's
thread asks and tells the same objects, so each use is under one lock, which is never held across an await.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskStatus

from openenv_trl.client import fetch_schema
from openenv_trl.errors import RolloutFailureError
from openenv_trl.rollout import (
    ActionInterface,
    Policy,
    RolloutEngine,
    RolloutLimits,
    SamplingParameters,
    Trajectory,
)
from openenv_trl.rollout.first_error import first_error_alone
from openenv_trl.rollout.observer import Phase
from openenv_trl.rollout.play import asking, open_pool
from openenv_trl.rollout.servers import Servers, described
from openenv_trl.training.async_worker.advantages import group_advantages, total_rewards
from openenv_trl.training.async_worker.buffer import RolloutBuffer
from openenv_trl.training.async_worker.gate import GroupGate, Hold, Loss
from openenv_trl.training.async_worker.health import Health
from openenv_trl.training.async_worker.outage import OutageWatch
from openenv_trl.training.async_worker.prompts import GroupTasks, PromptSource
from openenv_trl.training.async_worker.report import LossReasons, Metrics, group_metrics, row_metrics
from openenv_trl.training.async_worker.sampler import VersionedPolicy
from openenv_trl.training.async_worker.samples import oldest_version, rollout_samples
from openenv_trl.training.async_worker.scoring import RewardCall, reward_names, score_group
from openenv_trl.training.async_worker.settings import AsyncRolloutSettings

logger = logging.getLogger("openenv_trl.training.async_worker")

_TICK_S = 0.5
_CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class RolloutParts:
    """What the loop works with.

    Attributes:
        servers: The environment's servers.
        sessions_per_server: Sessions to hold open on each at most.
        headers: HTTP headers of every connection to them.
        tokenizer: With a chat template.
        template_kwargs: More arguments for the chat template.
        actions: How the model acts; discovered if None.
        limits: Of each episode.
        policy: Who samples.
        sampling: How.
        prompts: What is played.
        rewards: Reward functions.
        reward_weights: One for each.
        on_group: Called in the worker's thread with each group's trajectories, when they are scored.
    """

    servers: Servers
    sessions_per_server: int
    headers: dict[str, str] | None
    tokenizer: Any
    template_kwargs: dict[str, Any]
    actions: ActionInterface | None
    limits: RolloutLimits
    policy: Policy
    sampling: SamplingParameters
    prompts: PromptSource
    rewards: list[RewardCall]
    reward_weights: list[float]
    on_group: Callable[[list[Trajectory]], None] | None


@dataclass
class Shared:
    """What both threads use, under ``lock``; the queue has its own."""

    gate: GroupGate
    health: Health
    buffer: RolloutBuffer
    lock: threading.Lock = field(default_factory=threading.Lock)


class RolloutLoop:
    """One run of the worker, from its start to its stop.

    Args:
        parts: What it works with.
        settings: How.
        shared: What the trainer's thread looks at.
        push_metrics: Takes metrics for the trainer; must not block.
    """

    def __init__(
        self,
        parts: RolloutParts,
        settings: AsyncRolloutSettings,
        shared: Shared,
        push_metrics: Callable[[Metrics], None],
    ) -> None:
        self._parts = parts
        self._settings = settings
        self._shared = shared
        self._push_metrics = push_metrics
        self._wake = anyio.Event()
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._reasons = LossReasons()
        self._scope = anyio.CancelScope()
        self._held: dict[Hold, float] = {}
        self._policy = VersionedPolicy(
            parts.policy,
            version=self._version,
            outage=OutageWatch(max_outage_s=settings.max_outage_s, first_delay_s=settings.outage_delay_s),
            on_success=lambda: self._progressed("a completion"),
            on_failure=self._failed,
        )

    def wake(self) -> None:
        """Look again whether a group may begin. Call it on the loop."""
        self._wake.set()

    def cancel(self, groups: Sequence[int]) -> None:
        """Give up groups that new weights have overtaken. Call it on the loop."""
        for group in groups:
            if group in self._scopes:
                self._scopes[group].cancel()
        self._wake.set()

    def end(self) -> None:
        """End all that goes on. Call it on the loop."""
        self._scope.cancel()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Play until `end`. Started when the servers answered and the chat template was found fit.

        Raises:
            OpenEnvError: Something without which nothing goes on: the message says what to change.
        """
        parts = self._parts
        with self._scope:
            async with (
                _policy_open(parts.policy),
                open_pool(parts.servers, sessions_per_server=parts.sessions_per_server, headers=parts.headers) as pool,
            ):
                engine = RolloutEngine(
                    pool,
                    parts.tokenizer,
                    actions=parts.actions,
                    limits=parts.limits,
                    max_concurrent_episodes=self._settings.group_size,
                    fetch_schema=asking(fetch_schema, pool, parts.headers),
                    chat_template_kwargs=parts.template_kwargs,
                )
                await engine.prepare()
                task_status.started()
                with first_error_alone():
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._tick)
                        await self._begin_groups(engine, tasks)

    async def _begin_groups(self, engine: RolloutEngine, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            self._wake = anyio.Event()
            buffered = self._shared.buffer.qsize()
            with self._shared.lock:
                hold = self._shared.gate.hold(buffered)
            if hold is None:
                group = self._parts.prompts.next_group()
                with self._shared.lock:
                    self._shared.gate.begin(group.number)
                    self._count_inflight()
                tasks.start_soon(self._play_group, engine, group)
                await anyio.lowlevel.checkpoint()
                continue
            began = anyio.current_time()
            await self._wake.wait()
            self._held[hold] = self._held.get(hold, 0.0) + anyio.current_time() - began

    async def _play_group(self, engine: RolloutEngine, group: GroupTasks) -> None:
        with anyio.CancelScope() as scope:
            self._scopes[group.number] = scope
            trajectories = await engine.run(
                group.tasks, self._policy, self._parts.sampling, observer=_Progress(self._progressed)
            )
            metrics: Metrics = {}
            rewards = await score_group(
                self._parts.rewards, trajectories, group.columns, lambda name, value: metrics.update({name: value})
            )
            await self._hand_over(group, trajectories, rewards, metrics)
        del self._scopes[group.number]
        if scope.cancelled_caught:
            with self._shared.lock:
                self._shared.gate.overtaken(group.number)
                self._count_inflight()
            self._push_metrics({f"rollout/lost_{Loss.STALE.value}_total": 1.0})
        self._wake.set()

    async def _hand_over(
        self,
        group: GroupTasks,
        trajectories: list[Trajectory],
        rewards: list[list[float | None]],
        metrics: Metrics,
    ) -> None:
        settings, shared = self._settings, self._shared
        totals = total_rewards(rewards, self._parts.reward_weights)
        advantages = group_advantages(totals, settings.scale_rewards)
        scored = [advantage for advantage in advantages if advantage is not None]
        loss = None
        if len(scored) < settings.min_scored:
            loss = Loss.UNSOUND
        elif not settings.keep_equal_groups and not any(scored):
            loss = Loss.EQUAL
        version = oldest_version([t for t, a in zip(trajectories, advantages, strict=True) if a is not None])
        rows: list[Any] = []
        if loss is None:
            rows = rollout_samples(
                trajectories,
                advantages,
                row_metrics(reward_names(self._parts.rewards), trajectories, rewards, totals),
                model_version=self._version() if version is None else version,
                group=group.number,
            )
        if self._parts.on_group is not None:
            await anyio.to_thread.run_sync(self._parts.on_group, trajectories, abandon_on_cancel=True)
        with shared.lock:
            loss = shared.gate.finish(group.number, version, len(rows), loss)
            lost_in_a_row = shared.gate.lost_in_a_row
            if loss is None:
                for row in rows:
                    row.enqueued_at = time.time()
                    shared.buffer.put_nowait(row)
            self._count_inflight()
        self._progressed("a group")
        numbers = group_metrics(trajectories, rows=len(rows), loss=loss, inflight=len(self._scopes), held=self._held)
        self._held.clear()
        self._push_metrics(numbers | metrics)
        if loss is None:
            self._reasons.clear()
        elif loss is not Loss.STALE:
            self._reasons.note(trajectories, loss)
            if lost_in_a_row >= settings.max_lost_groups:
                raise RolloutFailureError(self._reasons.text(lost_in_a_row, described(self._parts.servers)))

    async def _tick(self) -> None:
        while True:
            with self._shared.lock:
                self._shared.health.tick(time.monotonic())
            await anyio.sleep(_TICK_S)

    def _version(self) -> int:
        with self._shared.lock:
            return self._shared.gate.version

    def _progressed(self, what: str) -> None:
        with self._shared.lock:
            self._shared.health.progressed(time.monotonic(), what)

    def _failed(self, error: str) -> None:
        with self._shared.lock:
            self._shared.health.outage = error
        self._push_metrics({"rollout/policy_failures_total": 1.0})

    def _count_inflight(self) -> None:
        self._shared.health.groups_inflight(len(self._shared.gate.inflight), time.monotonic())


@asynccontextmanager
async def _policy_open(policy: Any) -> AsyncGenerator[None]:
    """Keep the policy's connections for the block, and leave none behind."""
    opened = getattr(policy, "opened", None)
    if opened is not None:
        async with opened():
            yield
        return
    try:
        yield
    finally:
        close = getattr(policy, "aclose", None)
        if close is not None:
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await close()


class _Progress:
    """Hears of a group's run what counts as progress: a completion and a step that succeeded."""

    def __init__(self, progressed: Callable[[str], None]) -> None:
        self._progressed = progressed

    def run_started(self, episodes: int, now: float) -> None: ...

    def episode_started(self, index: int, now: float) -> None: ...

    def phase_changed(self, index: int, phase: Phase, now: float) -> None:
        if phase is Phase.STEPPING:
            self._progressed("a completion")

    def turn_ended(self, index: int, turn: Any, now: float) -> None:
        self._progressed("a step")

    def episode_finished(self, index: int, trajectory: Trajectory, now: float) -> None: ...

    def run_ended(self, now: float) -> None: ...
