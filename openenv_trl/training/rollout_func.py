"""A ``rollout_func`` for TRL's ``GRPOTrainer``: all episodes of a generation batch at once, over environment servers.

`EnvironmentRollout` owns a background event loop, a pool of sessions and a rollout engine. The trainer calls it with
the prompts of a batch; it plays every episode concurrently while the trainer's model generates on the calling thread,
and gives back exact token ids, the mask of what the model wrote, and the trajectories for the reward functions.

How a row's columns reach ``reset``: see `openenv_trl.training.columns`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.from_thread

from openenv_trl.client import GenericEnvClient, fetch_health, fetch_schema
from openenv_trl.errors import ConfigurationError, OpenEnvError, RolloutFailureError
from openenv_trl.providers import SessionPool
from openenv_trl.rollout import (
    ActionInterface,
    RolloutEngine,
    RolloutLimits,
    SamplingParameters,
    Task,
    Trajectory,
    write_parquet,
)
from openenv_trl.rollout.play import open_pool
from openenv_trl.training.columns import attach_columns
from openenv_trl.training.generation import (
    GenerationBridge,
    trainer_generate,
    trainer_lockstep,
    trainer_stop_ids,
)
from openenv_trl.training.rows import trajectories_to_rows
from openenv_trl.training.tasks import SharedRandomness, tasks_from_prompts

logger = logging.getLogger(__name__)


class EnvironmentRollout:
    """Plays the prompts of a generation batch in environments. Pass it to ``GRPOTrainer(rollout_func=...)``.

    Args:
        base_urls: The environment servers, such as ``"http://localhost:8000"``; one or several that serve the same
            environment.
        sessions_per_server: Sessions to hold open on each server at most. An episode that finds none free waits; a
            server that allows fewer is learned from its refusals.
        limits: Turns, tokens and deadlines of an episode. Its ``max_completion_tokens`` is the trainer's
            ``max_completion_length`` where it is not set, and never more than that.
        actions: How the model's text becomes actions: discovered from the environment (its tools, or one tool with the
            action's schema) if None. ``TextActions`` reads plain text instead.
        shared_randomness: What the generations of a prompt share: see `SharedRandomness`.
        seed: The run's own seed, for the luck that generations do not share; the trainer's ``seed`` if None.
        max_failed_fraction: Raise when more than this part of a batch failed after all tries, from 0 to 1. Failed
            episodes are otherwise left out of the update, with reward None.
        trajectory_dir: Write every batch's trajectories there as Parquet, if given.
        headers: HTTP headers of every connection, such as an authorization.
        template_kwargs: Further arguments of the chat template, such as ``{"enable_thinking": False}``; the trainer's
            ``chat_template_kwargs`` if None.

    Example:
        >>> rollout = EnvironmentRollout(["http://localhost:8000"])
        >>> trainer = GRPOTrainer(
        ...     model="Qwen/Qwen3-0.6B",
        ...     reward_funcs=environment_reward(),
        ...     rollout_func=rollout,
        ...     train_dataset=rollout.prepare_dataset([{"prompt": "Play a hand.", "seed": i} for i in range(1000)]),
        ... )
        >>> trainer.train()
    """

    def __init__(
        self,
        base_urls: Sequence[str] | str,
        *,
        sessions_per_server: int = 64,
        limits: RolloutLimits | None = None,
        actions: ActionInterface | None = None,
        shared_randomness: SharedRandomness | str = SharedRandomness.EPISODE,
        seed: int | None = None,
        max_failed_fraction: float = 0.5,
        trajectory_dir: str | Path | None = None,
        headers: dict[str, str] | None = None,
        template_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.base_urls = [base_urls] if isinstance(base_urls, str) else list(base_urls or ())
        if not self.base_urls:
            raise ConfigurationError("base_urls is empty: give the address of at least one environment server.")
        if not 0.0 <= max_failed_fraction <= 1.0:
            raise ConfigurationError(f"max_failed_fraction={max_failed_fraction} must lie between 0 and 1.")
        choices = [choice.value for choice in SharedRandomness]
        if shared_randomness not in choices:
            raise ConfigurationError(f"shared_randomness={shared_randomness!r} must be one of {choices}.")
        self.shared_randomness = SharedRandomness(shared_randomness)
        self.limits = limits or RolloutLimits()
        self.metrics: dict[str, float] = {}
        """The last batch's numbers, as they were logged."""
        self._sessions_per_server = sessions_per_server
        self._actions = actions
        self._seed = seed
        self._max_failed_fraction = max_failed_fraction
        self._trajectory_dir = None if trajectory_dir is None else Path(trajectory_dir)
        self._headers = headers
        self._template_kwargs = template_kwargs
        self._batches = BatchNames()
        self._further_columns: dict[int, bool] = {}
        self._engine: RolloutEngine | None = None
        self._engine_is_for: tuple[Any, ...] = ()
        self._pool: SessionPool[GenericEnvClient] | None = None
        self._portal: anyio.from_thread.BlockingPortal | None = None
        self._runs: set[anyio.CancelScope] = set()
        self._exit = contextlib.ExitStack()

    def prepare_dataset(self, dataset: Any, *, columns: Sequence[str] | None = None) -> Any:
        """Make a dataset's columns reach ``reset``: see `attach_columns`."""
        return attach_columns(dataset, columns=columns)

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Play one generation batch, as TRL calls it.

        Args:
            prompts: This process's prompts, each a list of messages, repeated for its group.
            trainer: The trainer, for its model's generation, tokenizer and arguments.

        Returns:
            ``prompt_ids``, ``completion_ids``, ``logprobs`` and ``env_mask``, lists with one list a prompt, of equal
            lengths within a row; and ``trajectory``, one `Trajectory` a prompt, for the reward functions.

        Raises:
            ConfigurationError: Something of the user's that cannot work: the message says what to change.
            RolloutFailureError: More of the batch failed than ``max_failed_fraction``.
        """
        engine, portal = self._started(trainer)
        training = bool(trainer.model.training)
        batch = self._batches.next(training, int(trainer.state.global_step))
        group_size = int(trainer.num_generations if training else trainer.num_generations_eval)
        tasks = tasks_from_prompts(
            prompts,
            group_size=group_size,
            shared=self.shared_randomness,
            run_seed=int(trainer.args.seed if self._seed is None else self._seed),
            batch=batch,
            process_index=int(trainer.accelerator.process_index),
            columns_expected=self._has_further_columns(trainer.train_dataset if training else trainer.eval_dataset),
        )
        bridge = GenerationBridge(
            trainer_generate(trainer), stop_ids=trainer_stop_ids(trainer), lockstep=trainer_lockstep(trainer)
        )
        work = portal.start_task_soon(self._run, engine, tasks, bridge)
        bridge.serve(work, portal)
        trajectories: list[Trajectory] = work.result()
        self._report(trajectories, trainer, batch)
        return trajectories_to_rows(trajectories, fallback_id=trainer_stop_ids(trainer)[0])

    def close(self) -> None:
        """Close all sessions and end the background loop. Called at interpreter exit too."""
        if self._portal is not None:
            # An interrupt can hit the main thread at any moment: a run that it no longer knows of would wait for it.
            self._portal.call(self._cancel_runs)
        self._exit.close()
        self._engine = self._portal = self._pool = None

    def __enter__(self) -> EnvironmentRollout:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _run(self, engine: RolloutEngine, tasks: list[Task], bridge: GenerationBridge) -> list[Trajectory]:
        with anyio.CancelScope() as scope:
            self._runs.add(scope)
            try:
                return await engine.run(tasks, bridge, SamplingParameters())
            finally:
                self._runs.discard(scope)
        raise ConfigurationError("The rollout was closed while a batch was played.")

    def _cancel_runs(self) -> None:
        for scope in list(self._runs):
            scope.cancel()

    def _started(self, trainer: Any) -> tuple[RolloutEngine, anyio.from_thread.BlockingPortal]:
        """The engine for this trainer, and the portal of its loop; both are made when they are first needed."""
        if self._portal is None or self._pool is None:
            self._portal = self._exit.enter_context(anyio.from_thread.start_blocking_portal("asyncio"))
            atexit.register(self.close)
            self._portal.call(self._check_servers)
            self._pool = self._exit.enter_context(
                self._portal.wrap_async_context_manager(
                    open_pool(self.base_urls, sessions_per_server=self._sessions_per_server, headers=self._headers)
                )
            )
        kwargs = self._template_kwargs
        if kwargs is None:
            kwargs = dict(getattr(trainer.args, "chat_template_kwargs", None) or {})
        tokenizer, room = trainer.processing_class, int(trainer.args.max_completion_length)
        wanted = (tokenizer, room, kwargs)
        if self._engine is None or self._engine_is_for != wanted:
            limits = self.limits
            if "max_completion_tokens" not in limits.model_fields_set or room < limits.max_completion_tokens:
                limits = limits.model_copy(update={"max_completion_tokens": room})
            self._engine = RolloutEngine(
                self._pool,
                tokenizer,
                actions=self._actions,
                limits=limits,
                max_concurrent_episodes=len(self.base_urls) * self._sessions_per_server,
                fetch_schema=functools.partial(fetch_schema, headers=self._headers),
                chat_template_kwargs=kwargs,
            )
            self._engine_is_for = wanted
        return self._engine, self._portal

    async def _check_servers(self) -> None:
        """A wrong address is said before anything else. One server that answers is enough."""
        errors: list[OpenEnvError] = []
        for url in self.base_urls:
            try:
                await fetch_health(url, headers=self._headers)
            except OpenEnvError as error:
                logger.warning("The environment server at %s does not answer: %s", url, error)
                errors.append(error)
        if len(errors) == len(self.base_urls):
            raise errors[0]

    def _has_further_columns(self, dataset: Any) -> bool:
        """Whether a data set has columns beside the prompt; a stream that does not say is asked for its first row."""
        if dataset is None:
            return False
        if isinstance(dataset, dict):  # several evaluation sets, by name
            return any(self._has_further_columns(each) for each in cast("dict[str, Any]", dataset).values())
        if id(dataset) not in self._further_columns:
            names: Any = getattr(dataset, "column_names", None)
            if names is None:
                names = next(iter(dataset), ())
            known: set[str] = {*names}
            self._further_columns[id(dataset)] = bool(known - {"prompt", "completion"})
        return self._further_columns[id(dataset)]

    def _report(self, trajectories: list[Trajectory], trainer: Any, batch: str) -> None:
        self.metrics = {} if self._engine is None else self._engine.metrics
        log_metric = getattr(trainer, "_log_metric", None)
        if log_metric is not None:
            for name, value in self.metrics.items():
                log_metric(f"rollout/{name}", value)
        if self._trajectory_dir is not None:
            rank = int(trainer.accelerator.process_index)
            write_parquet(trajectories, self._trajectory_dir / f"{batch}_{rank}.parquet")
        failed = [t for t in trajectories if t.end_reason.is_failure]
        if len(failed) > self._max_failed_fraction * len(trajectories):
            reasons = sorted({f"{t.end_reason.value}: {t.error}" for t in failed})
            raise RolloutFailureError(
                f"{len(failed)} of {len(trajectories)} episodes failed after all tries, more than "
                f"max_failed_fraction={self._max_failed_fraction}. The reasons: {'; '.join(reasons[:5])}. "
                f"Look at the servers' logs ({', '.join(self.base_urls)}), or allow more failures."
            )


class BatchNames:
    """Names for generation batches: the same at each run of the same step, different from one another.

    So a run that is taken up again from a checkpoint goes on with new luck, as it would have without the interruption,
    and an evaluation plays the same tasks each time.
    """

    def __init__(self) -> None:
        self._before = ("", -1)
        self._count = 0

    def next(self, training: bool, step: int) -> str:
        """The next batch's name.

        Args:
            training: Whether it is for training, and not an evaluation's.
            step: The trainer's step.
        """
        place = ("train" if training else "eval", step)
        self._count = self._count + 1 if place == self._before else 0
        self._before = place
        return f"train_{step:06d}_{self._count}" if training else f"eval_{self._count:06d}"
