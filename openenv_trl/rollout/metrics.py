"""The numbers of a run: how its episodes ended, how long they took, how much they wrote."""

from __future__ import annotations

from collections.abc import Sequence

from openenv_trl.rollout.trajectory import Trajectory


def rollout_metrics(
    trajectories: Sequence[Trajectory], *, batch_sizes: Sequence[int] = ()
) -> dict[str, float]:
    """A flat dict of the run's numbers, ready to log.

    Args:
        trajectories: What the run brought back.
        batch_sizes: The size of each batch that the policy was given.
    """
    raise NotImplementedError


def group_mismatches(trajectories: Sequence[Trajectory]) -> list[str | int]:
    """The groups whose episodes did not all start from the same observation."""
    raise NotImplementedError
