"""Trajectories in Parquet: one row each, one file a call, so that a directory of them only ever grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from openenv_trl.rollout.trajectory import Trajectory


def write_parquet(trajectories: Sequence[Trajectory], path: str | Path) -> Path:
    """Write trajectories to a new file.

    Args:
        trajectories: What to write.
        path: The file to write, or a directory, in which the file gets a new name.

    Returns:
        The file written.
    """
    raise NotImplementedError


def read_parquet(path: str | Path) -> list[Trajectory]:
    """Read trajectories from one file, or from all files of a directory in the order of their names."""
    raise NotImplementedError
