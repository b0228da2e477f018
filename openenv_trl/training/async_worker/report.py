"""What the worker says of a group: the numbers of its rows, those of its episodes, and why nothing came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from openenv_trl.rollout import Trajectory, rollout_metrics
from openenv_trl.training.async_worker.advantages import mean_and_deviation
from openenv_trl.training.async_worker.gate import Hold, Loss

Metrics = dict[str, "float | tuple[float, float]"]
"""As TRL's trainer takes them: a number is averaged (summed where its name has the word "total"), a pair is a rate."""
_NAN = float("nan")
_OF_BATCHES = ("batches", "batch_size")
"""Of policies that are called with batches: an inference server makes its own."""


def row_metrics(
    names: Sequence[str],
    trajectories: Sequence[Trajectory],
    rewards: Sequence[Sequence[float | None]],
    totals: Sequence[float | None],
) -> list[Mapping[str, float]]:
    """What TRL logs of each row, under TRL's own names; NaN where there is no reward.

    Args:
        names: Of the reward functions.
        trajectories: The group's.
        rewards: Each function's reward of each episode.
        totals: Each episode's reward.
    """
    _, deviation = mean_and_deviation(totals)
    rows: list[Mapping[str, float]] = []
    for index, trajectory in enumerate(trajectories):
        total = totals[index]
        row = {"reward": _NAN if total is None else total, "reward_std": deviation}
        for name, values in zip(names, rewards, strict=True):
            value = values[index]
            row[f"rewards/{name}"] = _NAN if value is None else value
        actions = len(trajectory.step_rewards) + trajectory.invalid_actions
        row["tools/call_frequency"] = float(actions)
        row["tools/failure_frequency"] = trajectory.invalid_actions / actions if actions else 0.0
        rows.append(row)
    return rows


def group_metrics(
    trajectories: Sequence[Trajectory], *, rows: int, loss: Loss | None, inflight: int, held: Mapping[Hold, float]
) -> Metrics:
    """The numbers of a finished group.

    Args:
        trajectories: The group's.
        rows: Rows handed over.
        loss: Why none were.
        inflight: Groups in flight.
        held: Seconds that no group could begin since the last report, by reason.
    """
    found = rollout_metrics(trajectories)
    numbers: Metrics = {f"rollout/{name}": value for name, value in found.items() if name not in _OF_BATCHES}
    numbers["rollout/rows_left_out_total"] = float(len(trajectories) - rows if loss is None else 0)
    numbers["rollout/inflight_groups"] = float(inflight)
    numbers |= {f"rollout/lost_{reason.value}_total": float(loss is reason) for reason in Loss}
    return numbers | {f"rollout/held_{hold.value}_total_s": seconds for hold, seconds in held.items()}


class LossReasons:
    """Why groups in a row brought nothing."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def clear(self) -> None:
        """A group was handed over."""
        self._reasons.clear()

    def note(self, trajectories: Sequence[Trajectory], loss: Loss) -> None:
        """A group was lost."""
        if loss is Loss.EQUAL:
            self._reasons["all rewards of a group are equal"] += 1
        for trajectory in trajectories:
            if trajectory.end_reason.is_failure:
                self._reasons[f"{trajectory.end_reason.value}: {trajectory.error}"] += 1
            elif loss is Loss.UNSOUND:
                self._reasons["the reward functions gave None"] += 1

    def text(self, count: int, servers: str) -> str:
        """What the error says after so many groups."""
        reasons = "; ".join(f"{reason} ({times} times)" for reason, times in self._reasons.most_common(3))
        return (
            f"{count} groups in a row brought nothing to train on. The commonest reasons: {reasons}. Look at the "
            f"environment servers' logs ({servers}) and at the reward functions, or allow more with "
            "max_lost_groups."
        )
