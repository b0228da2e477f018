"""A rollout worker for TRL's ``AsyncGRPOTrainer``: episodes on environment servers, while the trainer trains.

It fits TRL's ``RolloutWorkerProtocol``. The loop runs in a *thread* of the trainer's process, where TRL's own worker is
a child process that is spawned: all that it does is wait for sockets and render a few templates, since the model
samples in the inference server's process; and in a thread the reward functions, the tokenizer and the policy are the
objects that the user made, which need not be pickled and may hold what they like.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio.from_thread

from openenv_trl.errors import ConfigurationError, RolloutFailureError, SessionStateError
from openenv_trl.rollout import ActionInterface, Policy, RolloutLimits, SamplingParameters, Trajectory, TrajectoryWriter
from openenv_trl.rollout.servers import ProvidedServers, Servers, server_count
from openenv_trl.training.async_worker.buffer import RolloutBuffer
from openenv_trl.training.async_worker.gate import GroupGate, Loss
from openenv_trl.training.async_worker.health import Health
from openenv_trl.training.async_worker.loop import RolloutLoop, RolloutParts, Shared
from openenv_trl.training.async_worker.prompts import PromptSource
from openenv_trl.training.async_worker.report import Metrics
from openenv_trl.training.async_worker.scoring import RewardCall
from openenv_trl.training.async_worker.settings import (
    AsyncRolloutSettings,
    sampling_from_config,
    settings_from_config,
)

logger = logging.getLogger("openenv_trl.training.async_worker")


class EnvironmentRolloutWorker:
    """Plays groups of episodes without pause and keeps the trainer's queue filled.

    Pass it to ``AsyncGRPOTrainer(rollout_worker=...)``, which starts and stops it.

    Args:
        base_urls: The environment servers; one or several that serve the same environment.
        tokenizer: The model's, with a chat template.
        dataset: Rows with a ``prompt``, the trainer's ``train_dataset``; the other columns go to ``reset`` and to the
            reward functions.
        policy: Samples from the inference server, ids in and ids with log-probs out. Its ``aclose``, where it has one,
            is called when the worker stops.
        reward_funcs: Reward functions, as ``GRPOTrainer`` takes them; `openenv_trl.rewards` has them.
        settings: Sizes, staleness, seeds: see `AsyncRolloutSettings`.
        limits: Of each episode.
        sampling: How the policy samples. The temperature must be the trainer's.
        reward_weights: One for each reward function; all 1.0 if None.
        sessions_per_server: Sessions to hold open on each server; enough for all episodes in flight if None.
        actions: How the model's text becomes actions; discovered from the environment if None.
        columns: The columns that go to ``reset``; all if None.
        headers: HTTP headers of every connection to an environment server.
        template_kwargs: More arguments for the chat template.
        on_group: Called in a thread with the trajectories of each group when they are scored, to store them for
            example.

    Raises:
        ConfigurationError: A setting cannot work; the message says what to change.

    Example:
        >>> worker = EnvironmentRolloutWorker.from_config(
        ...     args,
        ...     base_urls=["http://localhost:8001"],
        ...     tokenizer=tokenizer,
        ...     dataset=dataset,
        ...     policy=policy,
        ...     reward_funcs=[environment_reward()],
        ... )
        >>> AsyncGRPOTrainer(model=path, args=args, train_dataset=dataset, rollout_worker=worker).train()
    """

    def __init__(
        self,
        base_urls: Servers | str,
        *,
        tokenizer: Any,
        dataset: Any,
        policy: Policy,
        reward_funcs: Sequence[RewardCall] | RewardCall,
        settings: AsyncRolloutSettings | None = None,
        limits: RolloutLimits | None = None,
        sampling: SamplingParameters | None = None,
        reward_weights: Sequence[float] | None = None,
        sessions_per_server: int | None = None,
        actions: ActionInterface | None = None,
        columns: Sequence[str] | None = None,
        headers: dict[str, str] | None = None,
        template_kwargs: dict[str, Any] | None = None,
        on_group: Callable[[list[Trajectory]], None] | None = None,
    ) -> None:
        servers: Servers = [base_urls] if isinstance(base_urls, str) else base_urls
        if not isinstance(servers, ProvidedServers) and not list(servers):
            raise ConfigurationError("base_urls is empty: give the address of at least one environment server.")
        rewards = [reward_funcs] if callable(reward_funcs) else list(reward_funcs)
        weights = [1.0] * len(rewards) if reward_weights is None else list(reward_weights)
        if not rewards or len(weights) != len(rewards):
            raise ConfigurationError(
                f"There must be a reward function, and one of reward_weights for each: got {len(rewards)} functions "
                f"and {len(weights)} weights."
            )
        self.settings = settings or AsyncRolloutSettings()
        episodes = max(self.settings.max_inflight_episodes, self.settings.group_size)
        self._parts = RolloutParts(
            servers=servers,
            sessions_per_server=sessions_per_server or -(-episodes // server_count(servers)),
            headers=headers,
            tokenizer=tokenizer,
            template_kwargs=dict(template_kwargs or {}),
            actions=actions,
            limits=limits or RolloutLimits(),
            policy=policy,
            sampling=sampling or SamplingParameters(),
            prompts=PromptSource(dataset, self.settings, columns=columns),
            rewards=rewards,
            reward_weights=weights,
            on_group=on_group,
        )
        self.rollout_buffer: queue.Queue[Any] = RolloutBuffer(self._row_taken)
        """Rows for the trainer: TRL's ``RolloutSample``."""
        self.metrics_queue: queue.Queue[Metrics] = queue.Queue(maxsize=4096)
        """Numbers for the trainer's log. What finds no place is dropped: a trainer that does not log holds up
        nothing."""
        self._shared = Shared(GroupGate(self.settings), Health(), self._buffer)
        self._portal: anyio.from_thread.BlockingPortal | None = None
        self._loop: RolloutLoop | None = None
        self._exit = contextlib.ExitStack()

    @classmethod
    def from_config(
        cls,
        args: Any,
        base_urls: Servers | str,
        *,
        num_processes: int = 1,
        limits: RolloutLimits | None = None,
        template_kwargs: dict[str, Any] | None = None,
        changes: dict[str, Any] | None = None,
        **parts: Any,
    ) -> EnvironmentRolloutWorker:
        """A worker whose sizes, sampling and limits follow from the trainer's ``AsyncGRPOConfig``.

        Args:
            args: The ``AsyncGRPOConfig``.
            base_urls: As for the class.
            num_processes: Training processes that share the rows.
            limits: As for the class; its ``max_completion_tokens`` is never more than ``max_completion_length``, and
                that where it is not set.
            template_kwargs: As for the class; ``chat_template_kwargs`` of the config if None.
            changes: Fields of `AsyncRolloutSettings` to set otherwise.
            **parts: The other arguments of the class.
        """
        chosen, room = limits or RolloutLimits(), int(args.max_completion_length)
        if "max_completion_tokens" not in chosen.model_fields_set or room < chosen.max_completion_tokens:
            chosen = chosen.model_copy(update={"max_completion_tokens": room})
        kwargs = template_kwargs if template_kwargs is not None else dict(args.chat_template_kwargs or {})
        return cls(
            base_urls,
            settings=settings_from_config(args, num_processes=num_processes, **(changes or {})),
            sampling=sampling_from_config(args),
            limits=chosen,
            template_kwargs=kwargs,
            **parts,
        )

    @property
    def model_version(self) -> int:
        """The weights' version that episodes are now sampled with."""
        with self._shared.lock:
            return self._shared.gate.version

    @property
    def next_group(self) -> int:
        """The number of the next group to begin: ``first_group`` of a run that goes on from here."""
        return self._parts.prompts.next_number

    @property
    def groups(self) -> dict[str, int]:
        """Groups so far: ``handed_over``, in flight, and lost by reason."""
        with self._shared.lock:
            gate = self._shared.gate
            lost = {f"lost_{reason.value}": gate.lost[reason] for reason in Loss}
            return {"handed_over": gate.handed_over, "inflight": len(gate.inflight), **lost}

    def start(self) -> None:
        """Begin to play; returns when the environment servers answered. Called by the trainer.

        Raises:
            OpenEnvError: No server answered, or the chat template cannot carry the dialogues.
        """
        if self._portal is not None:
            raise SessionStateError("The rollout worker runs already.")
        with self._shared.lock:
            self._shared.health.start(time.monotonic())
        try:
            self._portal = self._exit.enter_context(anyio.from_thread.start_blocking_portal("asyncio"))
            self._loop = self._portal.call(self._make_loop)
            work, _ = self._portal.start_task(self._loop.run)
        except BaseException:
            self.stop()
            raise
        work.add_done_callback(self._ended)

    def stop(self) -> None:
        """End all episodes, close all sessions, and end the thread. Called by the trainer; again does nothing."""
        with self._shared.lock:
            self._shared.health.stop()
        loop = self._loop
        if loop is not None:
            self._on_loop(loop.end)
        # A loop that the user's code blocks cannot be ended; the trainer must not hang with it.
        closing = threading.Thread(target=self._exit.close, name="rollout-worker-stop", daemon=True)
        closing.start()
        closing.join(self.settings.stop_timeout_s)
        if closing.is_alive():
            logger.warning(
                "The rollout worker's thread did not end within stop_timeout_s=%g: something of the policy or of the "
                "reward functions blocks its event loop. It is left behind.",
                self.settings.stop_timeout_s,
            )
            self._exit = contextlib.ExitStack()
        self._portal = self._loop = None
        with self._shared.lock:
            self._shared.gate.stop()

    def update_model_version(self, model_version: int) -> None:
        """The inference server has new weights. Called by the trainer after each update.

        Rows in the queue and groups in flight that this makes too old are dropped, and counted.
        """
        with self._shared.lock:
            overtaken = self._shared.gate.weights_changed(model_version)
            oldest = self._shared.gate.oldest_allowed
        dropped = self._buffer.drop_older(oldest)
        if dropped:
            self._push({"rollout/rows_dropped_stale_total": float(dropped)})
        loop = self._loop
        if loop is not None:
            self._on_loop(lambda: loop.cancel(overtaken))

    def check_health(self, stale_after_s: float) -> None:
        """Raise if the worker has died, hangs or does not run. Called by the trainer while it waits for rows.

        Args:
            stale_after_s: Seconds without any finished generation or step, while episodes are in flight, that are too
                many.

        Raises:
            RolloutFailureError: It has; the message says what it was doing, and the cause is attached.
        """
        with self._shared.lock:
            problem = self._shared.health.problem(time.monotonic(), stale_after_s)
            death = self._shared.health.death
        if problem is not None:
            raise RolloutFailureError(problem) from death

    def __enter__(self) -> EnvironmentRolloutWorker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _buffer(self) -> RolloutBuffer:
        buffer = self.rollout_buffer
        assert isinstance(buffer, RolloutBuffer)
        return buffer

    def _make_loop(self) -> RolloutLoop:
        return RolloutLoop(self._parts, self.settings, self._shared, self._push)

    def _push(self, metrics: Metrics) -> None:
        with contextlib.suppress(queue.Full):
            self.metrics_queue.put_nowait(metrics)

    def _row_taken(self) -> None:
        with self._shared.lock:
            self._shared.gate.rows_taken(1)
        loop = self._loop
        if loop is not None:
            self._on_loop(loop.wake)

    def _on_loop(self, call: Callable[[], None]) -> None:
        portal = self._portal
        if portal is not None:
            # The loop may end at any moment; there is then nothing to tell it.
            with contextlib.suppress(RuntimeError):
                portal.start_task_soon(call)

    def _ended(self, work: concurrent.futures.Future[Any]) -> None:
        if work.cancelled():
            return
        error = work.exception()
        if error is not None:
            with self._shared.lock:
                self._shared.health.died(error)
            logger.error("The rollout worker has ended: %s", error)


def trajectory_files(folder: str | Path) -> Callable[[list[Trajectory]], None]:
    """An ``on_group`` that stores each group's trajectories as a Parquet file.

    Args:
        folder: Where; made if it is not there.

    Raises:
        ConfigurationError: Nothing can be written there.
    """
    writer = TrajectoryWriter(folder)

    def write(trajectories: list[Trajectory]) -> None:
        group = trajectories[0].task.group or f"index_{trajectories[0].task.index}"
        writer.write(trajectories, str(group).replace(":", "_"))

    return write
