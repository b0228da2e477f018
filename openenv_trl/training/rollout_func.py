"""A ``rollout_func`` for TRL's ``GRPOTrainer``: all episodes of a generation batch at once, over environment servers.

`EnvironmentRollout` owns a background event loop and, for each environment, a pool of sessions and a rollout engine.
The trainer calls it with the prompts of a batch; it plays every episode concurrently while the trainer's model
generates on the calling thread, and gives back exact token ids, the mask of what the model wrote, and the trajectories
for the reward functions.

How a row's columns reach ``reset``: see `openenv_trl.training.columns`. What happens when episodes fail: see
`openenv_trl.training.skipped_steps`. How several processes stay together: see `openenv_trl.training.ranks`.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread

from openenv_trl.errors import ConfigurationError, RolloutFailureError
from openenv_trl.rollout import (
    ActionInterface,
    RolloutEngine,
    RolloutLimits,
    RolloutStrategies,
    Task,
    Trajectory,
    TrajectoryWriter,
)
from openenv_trl.rollout.observer import RolloutObserver
from openenv_trl.training.batch_names import BatchNames
from openenv_trl.training.batch_tally import BatchTally
from openenv_trl.training.columns import attach_columns
from openenv_trl.training.curriculum import Curricula
from openenv_trl.training.curriculum_settings import BandCurriculum, StagedCurriculum
from openenv_trl.training.dataset_columns import FurtherColumns
from openenv_trl.training.environment_set import BatchResult, EnvironmentSet
from openenv_trl.training.environments import ALONE, ENVIRONMENT_COLUMN, EnvironmentAddresses, environment_specs
from openenv_trl.training.generation import GenerationBridge, trainer_generate, trainer_lockstep, trainer_stop_ids
from openenv_trl.training.ranks import RankReport, gather_from_ranks, merge_outcomes, raise_refused, raise_together
from openenv_trl.training.rollout_misuse import closed_meanwhile, refuse_another_tool_loop
from openenv_trl.training.rows import trajectories_to_rows
from openenv_trl.training.skipped_steps import SkippedSteps, Verdict
from openenv_trl.training.tasks import SharedRandomness, check_environment, tasks_from_prompts

if TYPE_CHECKING:
    from openenv_trl.training.skipped_step_callback import SkippedStepCallback

logger = logging.getLogger(__name__)

_STATE_KEY = "openenv_trl.curriculum"
"""Where the curricula's state is kept in the trainer's own, and so in each checkpoint's trainer_state.json."""


class EnvironmentRollout:
    """Plays the prompts of a generation batch in environments. Pass it to ``GRPOTrainer(rollout_func=...)``.

    Args:
        environments: The environment's servers: an address such as ``"http://localhost:8000"``, or several that serve
            the same environment. For several environments a dict, from each one's name to its addresses or its
            `EnvironmentSpec`; the dataset's column ``environment`` then says which one a row is played in.
        sessions_per_server: Sessions to hold open on each server at most. An episode that finds none free waits; a
            server that allows fewer is learned from its refusals.
        limits: Turns, tokens and deadlines of an episode. Its ``max_completion_tokens`` is the trainer's
            ``max_completion_length`` where it is not set, and never more than that.
        strategies: What is done when an episode fails or is slow; see ``docs/failures.md``.
        actions: How the model's text becomes actions: discovered from the environment (its tools, or one tool with the
            action's schema) if None. ``TextActions`` reads plain text instead.
        shared_randomness: What the generations of a prompt share: see `SharedRandomness`.
        seed: The run's own seed, for the luck that generations do not share; the trainer's ``seed`` if None.
        max_failed_fraction: Skip the step when more than this part of its batch failed after all tries, from 0 to 1,
            over all processes. Failed episodes are otherwise left out of the update, with reward None, and a batch
            without a sound episode is skipped in any case.
        max_skipped_steps: Steps that may be skipped in a row; one more ends the training. A server that is started
            again takes less than three batches' tries; what is broken for longer is broken.
        curriculum: The levels to play at (see `StagedCurriculum` and `BandCurriculum`); for several environments a
            dict, by name. It is saved with each checkpoint of the trainer, and taken up again from there.
        trajectory_dir: Write every batch's trajectories there as Parquet, if given.
        observer: Hears what each episode does, such as a `RolloutWatch`.
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
        environments: EnvironmentAddresses | Mapping[str, EnvironmentAddresses],
        *,
        sessions_per_server: int = 64,
        limits: RolloutLimits | None = None,
        strategies: RolloutStrategies | None = None,
        actions: ActionInterface | None = None,
        shared_randomness: SharedRandomness | str = SharedRandomness.EPISODE,
        seed: int | None = None,
        max_failed_fraction: float = 1.0,
        max_skipped_steps: int = 3,
        curriculum: StagedCurriculum | BandCurriculum | Mapping[str, StagedCurriculum | BandCurriculum] | None = None,
        trajectory_dir: str | Path | None = None,
        observer: RolloutObserver | None = None,
        headers: dict[str, str] | None = None,
        template_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.specs = environment_specs(environments)
        """The environments by name; one alone has the name ""."""
        choices = [choice.value for choice in SharedRandomness]
        if shared_randomness not in choices:
            raise ConfigurationError(f"shared_randomness={shared_randomness!r} must be one of {choices}.")
        if sessions_per_server < 1:
            raise ConfigurationError(f"sessions_per_server={sessions_per_server} must be at least 1.")
        self.shared_randomness = SharedRandomness(shared_randomness)
        self.limits = limits or RolloutLimits()
        self.metrics: dict[str, float] = {}
        """The last batch's numbers, as they were logged."""
        self.curricula = Curricula(curriculum, list(self.specs))
        """What the curricula know now."""
        self._seed = seed
        self._skipped = SkippedSteps(max_failed_fraction=max_failed_fraction, max_skipped_steps=max_skipped_steps)
        self._callback: SkippedStepCallback | None = None
        self._writer_folder = None if trajectory_dir is None else Path(trajectory_dir)
        self._writer: TrajectoryWriter | None = None
        self._observer = observer
        self._template_kwargs = template_kwargs
        self._batches = BatchNames()
        self._further_columns = FurtherColumns()
        self._environments = EnvironmentSet(
            self.specs,
            limits=self.limits,
            sessions_per_server=sessions_per_server,
            headers=headers,
            actions=actions,
            strategies=strategies,
        )
        self._trainer_state: Any = None
        self._is_taken_up = False
        """Whether the training began in another process: its environments have played there."""
        self._portal: anyio.from_thread.BlockingPortal | None = None
        self._runs: set[anyio.CancelScope] = set()
        self._closed = False
        """Whether it was closed since its loop was started."""
        self._exit = contextlib.ExitStack()

    @property
    def base_urls(self) -> list[str]:
        """The addresses of all servers, of all environments."""
        return [url for spec in self.specs.values() for url in spec.base_urls]

    @property
    def engines(self) -> dict[str, RolloutEngine]:
        """The rollout engine of each environment; known after the first batch."""
        return self._environments.engines

    def prepare_dataset(self, dataset: Any, *, columns: Sequence[str] | None = None) -> Any:
        """Make a dataset's columns reach ``reset``: see `attach_columns`.

        Raises:
            ConfigurationError: As `attach_columns`; or there are several environments, and a row names none of them.
        """
        attached = attach_columns(dataset, columns=columns)
        if ALONE not in self.specs and hasattr(attached, "unique"):
            names: set[Any] = {None}
            if ENVIRONMENT_COLUMN in attached.column_names:
                names = set(attached.unique(ENVIRONMENT_COLUMN))
            for name in sorted(names, key=str):
                check_environment(name, self.specs)
        return attached

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
            RolloutFailureError: Nothing could be trained on for more than ``max_skipped_steps`` steps, or another
                process had to stop. Where one process raises, all do.
        """
        refuse_another_tool_loop(trainer)
        portal = self._started_portal(trainer)
        training = bool(trainer.model.training)
        batch = self._batches.next(training, int(trainer.state.global_step))
        bridge = GenerationBridge(
            trainer_generate(trainer), stop_ids=trainer_stop_ids(trainer), lockstep=trainer_lockstep(trainer)
        )
        work = self._begin(prompts, trainer, portal, bridge, batch)
        bridge.serve(work, portal)
        result, error = self._finish(work, trainer, batch)
        reports = self._share(result, error, trainer)
        verdict = self._judge(reports, trainer, portal, batch)
        if training:
            assert self._callback is not None, "made with the portal"
            self._callback.skipping = verdict is Verdict.SKIP
            self.curricula.observe(merge_outcomes(reports))
            self._keep_curricula(trainer)
        self._log(result.metrics, trainer)
        return trajectories_to_rows(
            result.trajectories,
            fallback_id=trainer_stop_ids(trainer)[0],
            masked=verdict is Verdict.SKIP,
            need_logprobs=bool(getattr(trainer, "use_vllm", False)),
        )

    def close(self) -> None:
        """Close all sessions and end the background loop. Called at interpreter exit too.

        A batch that another thread has just played ends with an error that says so.
        """
        self._closed = True
        if self._portal is not None:
            # An interrupt can hit the main thread at any moment: a run that it no longer knows of would wait for it.
            # Where the loop itself has ended there is nothing left to cancel.
            with contextlib.suppress(RuntimeError):
                self._portal.call(self._cancel_runs)
        try:
            self._exit.close()
        except RuntimeError as error:
            logger.warning("The rollout's event loop had ended before its sessions were closed: %s", error)
        self._portal = None
        if self._writer is not None:
            self._writer.close()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy begins with, in this process or another: settings and what was learned, and nothing that is open.

        A copy opens sessions of its own with its first batch. It has no observer: two of them would tell of two runs
        in one place.
        """
        fresh = {"_portal": None, "_writer": None, "_callback": None, "_trainer_state": None, "_observer": None}
        opened = {"_environments": self._environments.unopened(), "_exit": contextlib.ExitStack(), "_runs": set[Any]()}
        return {**self.__dict__, **fresh, **opened, "_further_columns": FurtherColumns(), "_closed": False}

    def __enter__(self) -> EnvironmentRollout:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(
        self,
        prompts: list[Any],
        trainer: Any,
        portal: anyio.from_thread.BlockingPortal,
        bridge: GenerationBridge,
        batch: str,
    ) -> concurrent.futures.Future[BatchResult]:
        """The batch, being played on the loop. What fails already here is the future's: other ranks wait for this."""
        try:
            tasks = self._tasks(prompts, trainer, batch)
            kwargs = self._template_kwargs
            if kwargs is None:
                kwargs = dict(getattr(trainer.args, "chat_template_kwargs", None) or {})
            setting = (trainer.processing_class, int(trainer.args.max_completion_length), kwargs)
            return portal.start_task_soon(self._play, tasks, bridge, setting)
        except Exception as error:
            failed: concurrent.futures.Future[BatchResult] = concurrent.futures.Future()
            failed.set_exception(error)
            return failed

    def _tasks(self, prompts: list[Any], trainer: Any, batch: str) -> list[Task]:
        training = bool(trainer.model.training)
        return tasks_from_prompts(
            prompts,
            group_size=int(trainer.num_generations if training else trainer.num_generations_eval),
            shared=self.shared_randomness,
            run_seed=int(trainer.args.seed if self._seed is None else self._seed),
            batch=batch,
            process_index=int(trainer.accelerator.process_index),
            columns_expected=self._further_columns.of(trainer.train_dataset if training else trainer.eval_dataset),
            environments=self.specs,
            level_for=lambda name, draw: self.curricula.level_for(name, draw, training=training),
        )

    def _finish(
        self, work: concurrent.futures.Future[BatchResult], trainer: Any, batch: str
    ) -> tuple[BatchResult, Exception | None]:
        """What came of it, stored; empty where there is an error, which the other ranks hear of before it is raised."""
        try:
            result = work.result()
            self._write(result.trajectories, trainer, batch)
            return result, None
        except Exception as error:
            return BatchResult([]), closed_meanwhile(error) if self._closed else error

    async def _play(
        self, tasks: list[Task], bridge: GenerationBridge, setting: tuple[Any, int, dict[str, Any]]
    ) -> BatchResult:
        with anyio.CancelScope() as scope:
            if self._closed:  # before it had begun
                scope.cancel()
            self._runs.add(scope)
            try:
                await self._environments.open()
                self._environments.use(*setting)
                return await self._environments.run(tasks, bridge, self._observer)
            finally:
                self._runs.discard(scope)
        raise closed_meanwhile()

    def _cancel_runs(self) -> None:
        for scope in list(self._runs):
            scope.cancel()

    def _share(self, result: BatchResult, error: Exception | None, trainer: Any) -> list[RankReport]:
        """Tell all ranks how it went, and hear it of them; raise here if any had to stop."""
        problem = None if error is None else f"{type(error).__name__}: {error}"
        own = RankReport(
            problem,
            BatchTally.of(result.trajectories),
            self.curricula.outcomes(result.trajectories),
            {name: str(refusal) for name, refusal in result.refused.items()},
            self._environments.played,
        )
        reports = gather_from_ranks(trainer, own)
        raise_together(reports, int(trainer.accelerator.process_index), error)
        if not self._is_taken_up:
            raise_refused(reports)
        return reports

    def _judge(
        self, reports: list[RankReport], trainer: Any, portal: anyio.from_thread.BlockingPortal, batch: str
    ) -> Verdict:
        """What to do with the batch: all ranks have the same reports, and so find the same."""
        decision = self._skipped.decide(BatchTally.merged([report.tally for report in reports]))
        if decision.verdict is Verdict.STOP:
            try:
                states = portal.call(self._environments.server_states)
            except RuntimeError as error:
                if not self._closed:
                    raise
                raise closed_meanwhile(error) from error
            raise RolloutFailureError(f"{decision.message} The servers now: {states}. Look at their logs.")
        if decision.message and trainer.accelerator.is_main_process:
            logger.warning("Batch %s: %s", batch, decision.message)
        return decision.verdict

    def _started_portal(self, trainer: Any) -> anyio.from_thread.BlockingPortal:
        """The portal of the loop, which is started when it is first needed; and the trainer's state taken in."""
        if self._portal is None:
            self._closed = False
            self._portal = self._exit.enter_context(anyio.from_thread.start_blocking_portal("asyncio"))
            self._exit.callback(self._portal.call, self._environments.aclose)
            atexit.register(self.close)
        if self._callback is None:
            from openenv_trl.training.skipped_step_callback import SkippedStepCallback

            self._callback = SkippedStepCallback()
        if self._callback not in trainer.callback_handler.callbacks:
            trainer.add_callback(self._callback)
        if trainer.state is not self._trainer_state:  # another run of training: a new one, or one taken up again
            self._trainer_state = trainer.state
            self._is_taken_up = int(trainer.state.global_step) > 0
            kept: dict[str, Any] = getattr(trainer.state, "stateful_callbacks", None) or {}
            self.curricula.restore(kept.get(_STATE_KEY, {}))
        return self._portal

    def _keep_curricula(self, trainer: Any) -> None:
        """Put what the curricula know where the trainer's next checkpoint takes it from."""
        kept = getattr(trainer.state, "stateful_callbacks", None)
        if kept is not None and self.curricula.controllers:
            kept[_STATE_KEY] = self.curricula.state()

    def _log(self, numbers: Mapping[str, float], trainer: Any) -> None:
        self.metrics = dict(numbers)
        self.metrics |= {f"curriculum/{name}": value for name, value in self.curricula.metrics().items()}
        log_metric = getattr(trainer, "_log_metric", None)
        if log_metric is not None:
            for name, value in self.metrics.items():
                log_metric(f"rollout/{name}", value)

    def _write(self, trajectories: Sequence[Trajectory], trainer: Any, batch: str) -> None:
        """Store a batch; its rewards are stored when they are known: with the next batch, or at the end."""
        if self._writer_folder is None:
            return
        if self._writer is None:
            self._writer = TrajectoryWriter(self._writer_folder, rank=int(trainer.accelerator.process_index))
        self._writer.write(trajectories, batch)
