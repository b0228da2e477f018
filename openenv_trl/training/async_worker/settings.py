"""The settings of the asynchronous worker, and how they follow from the trainer's arguments."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import Self

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import SamplingParameters
from openenv_trl.training.tasks import SharedRandomness


class AsyncRolloutSettings(BaseModel):
    """How groups of episodes are begun, scored and handed over. Seconds are wall-clock seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    group_size: int = Field(default=8, ge=2)
    """Episodes of one prompt, whose rewards are compared: TRL's ``num_generations``, and its default."""
    max_inflight_episodes: int = Field(default=128, ge=1)
    """Episodes that are played at the same time; at least one group always is. More keep the inference server busy,
    and grow older before they are trained on."""
    max_buffered_rows: int = Field(default=1024, ge=1)
    """Rows that wait for the trainer, with those in flight; no group is begun whose rows would have no place. TRL's
    ``queue_maxsize``, and its default."""
    max_staleness: int = Field(default=4, ge=0)
    """Updates of the weights that a row may lag behind when the trainer takes it. TRL's default; 0 trains on the
    newest weights only and throws away what an update overtakes."""
    rows_per_version: int | None = Field(default=None, ge=1)
    """Rows that the trainer consumes between two updates of the weights: ``per_device_train_batch_size *
    gradient_accumulation_steps * processes * weight_sync_steps``. Given, no group is begun that would be too old by
    the time its turn comes. None where it is not known (token-budgeted batches): what grows too old is then
    dropped."""
    scale_rewards: Literal["group", "none"] = "group"
    """What a reward's distance from its group's mean is divided by: the group's standard deviation, as TRL does, or
    nothing. "none" avoids that groups with nearly equal rewards weigh as much as others."""
    keep_equal_groups: bool = True
    """Whether a group whose rewards are all equal is handed over. It has nothing to teach (its advantages are 0) and
    costs a training row for each episode, but leaving it out makes the others weigh more."""
    min_scored: int = Field(default=2, ge=2)
    """Episodes of a group that must have a reward; with fewer the group is dropped, since one reward has nothing to be
    compared with."""
    shared_randomness: SharedRandomness = SharedRandomness.EPISODE
    """What the episodes of a group share: see `SharedRandomness`."""
    seed: int = 0
    """The run's own seed: of the order of prompts, and of the luck that episodes do not share."""
    shuffle: bool = True
    """Whether each pass over the dataset has an order of its own, as ``GRPOTrainer`` has by default; a stream keeps
    its order in any case."""
    first_group: int = Field(default=0, ge=0)
    """The number of the first group: where a resumed run goes on. Group ``n`` is always the same prompt with the same
    luck."""
    max_lost_groups: int = Field(default=16, ge=1)
    """Groups in a row without enough sound episodes after which the worker gives up: the environment is then broken,
    and the trainer would wait for ever."""
    max_outage_s: float = Field(default=240.0, gt=0)
    """Seconds without any completion, while all attempts fail, after which the worker gives up. Until then episodes
    wait for the inference server to come back. Under TRL's ``heartbeat_stale_after_s`` (300), so that the reason is
    known when training ends."""
    outage_delay_s: float = Field(default=0.25, gt=0)
    """Seconds before a failed generation is tried again in an outage; grows with it, to five seconds."""
    stop_timeout_s: float = Field(default=15.0, gt=0)
    """Seconds that ``stop`` waits for the worker's thread. Sessions are closed in far less; only code of the user's
    that blocks the event loop can take longer, and is then left behind with a warning."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_buffered_rows < self.group_size:
            raise ValueError(
                f"max_buffered_rows={self.max_buffered_rows} has no place for one group of group_size="
                f"{self.group_size}: raise it."
            )
        if self.min_scored > self.group_size:
            raise ValueError(f"min_scored={self.min_scored} is more than group_size={self.group_size}: lower it.")
        return self


def settings_from_config(args: Any, *, num_processes: int = 1, **changes: Any) -> AsyncRolloutSettings:
    """The settings that an ``AsyncGRPOConfig`` implies.

    Args:
        args: The trainer's ``AsyncGRPOConfig``.
        num_processes: Training processes, which share the rows.
        **changes: Fields of `AsyncRolloutSettings` to set otherwise.
    """
    rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * num_processes
    inflight = args.max_inflight_tasks
    fixed_rows = args.token_budget is not None and args.token_budget <= 0
    implied: dict[str, Any] = {
        "group_size": args.num_generations,
        "max_inflight_episodes": inflight if inflight > 0 else max(args.max_staleness, 1) * rows,
        "max_buffered_rows": max(args.queue_maxsize, args.num_generations),
        "max_staleness": args.max_staleness,
        "rows_per_version": rows * args.weight_sync_steps if fixed_rows else None,
        "seed": args.seed,
    }
    return AsyncRolloutSettings(**{**implied, **changes})


def sampling_from_config(args: Any) -> SamplingParameters:
    """The sampling that an ``AsyncGRPOConfig`` names: its loss divides the logits by the same temperature.

    Raises:
        ConfigurationError: It penalises repetition, which the policies here do not.
    """
    if getattr(args, "repetition_penalty", 1.0) != 1.0:
        raise ConfigurationError(
            f"repetition_penalty={args.repetition_penalty} is not supported: the trainer's loss does not know of it, "
            "and so trains on wrong ratios. Leave it at 1.0."
        )
    return SamplingParameters(
        temperature=args.temperature, top_p=args.top_p, top_k=max(args.top_k, 0), min_p=args.min_p
    )
