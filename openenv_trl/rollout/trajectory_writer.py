"""Writes trajectories while a run goes on, and their rewards when those are known.

A trajectory is on disk as soon as its batch, or its share of a stream, is full; a process that is killed loses what it
had not been given, and at most ``rows_per_file - 1`` of a stream. Reward functions are called after the rollout, so a
file is written twice where they say something new: at once, and again with ``Trajectory.rewards``.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Self

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.store import import_pyarrow, write_parquet
from openenv_trl.rollout.trajectory import Trajectory

logger = logging.getLogger(__name__)

Rewards = tuple[dict[str, float | None], ...]


@dataclass
class _Written:
    """The last file, whose rewards may still come."""

    path: Path
    trajectories: tuple[Trajectory, ...]
    rewards: Rewards


class TrajectoryWriter:
    """Writes to one directory, beside other processes that do the same.

    Whole batches go out with `write`; trajectories that end one by one are given to `add`. The rewards of the last
    file may be filled in afterwards: the next `write`, `update` or `close` stores them. May be called from any thread.

    A disk that is full ends no run: what could not be written is warned of, and counted in ``lost``.

    Args:
        folder: The directory; made if it is not there.
        rank: This process's rank: part of each file's name, so that processes do not overwrite one another's.
        name: What files of `add` are called.
        rows_per_file: Trajectories in a file of `add`. Few, so that little is lost; many small files are read slowly.

    Raises:
        ConfigurationError: pyarrow is not installed, or nothing can be written to the directory.

    Example:
        >>> with TrajectoryWriter("outputs/trajectories") as writer:
        ...     await engine.run(tasks, policy, on_trajectory=writer.add)
    """

    def __init__(
        self, folder: str | Path, *, rank: int = 0, name: str = "trajectories", rows_per_file: int = 64
    ) -> None:
        if rows_per_file < 1:
            raise ConfigurationError(f"rows_per_file={rows_per_file} must be at least 1.")
        arrow, _ = import_pyarrow()
        arrow.array([0])  # pyarrow's first array imports pandas: now, and not while episodes are played
        self.folder = Path(folder)
        self.lost = 0
        """Trajectories that could not be written."""
        self._rank = rank
        self._rows_per_file = rows_per_file
        # Two runs into one directory, also of one rank, do not meet; and files sort in the order of time.
        self._stream = f"{name}_{time.strftime('%Y%m%dT%H%M%S')}_{secrets.token_hex(3)}"
        self._files = 0
        self._waiting: list[Trajectory] = []
        self._last: _Written | None = None
        self._lock = threading.Lock()
        probe = self.folder / f".{self._stream}_{rank}.unfinished"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ConfigurationError(f"Trajectories cannot be written to {self.folder}: {error}.") from error

    def write(self, trajectories: Sequence[Trajectory], batch: str) -> Path:
        """Write a batch at once, to ``{batch}_{rank}.parquet``. A batch of that name that is there is replaced.

        Args:
            trajectories: The batch.
            batch: Its name, the same in all processes.

        Returns:
            The file.
        """
        with self._lock:
            path = self.folder / f"{batch}_{self._rank}.parquet"
            self._write(path, trajectories)
            return path

    def add(self, trajectory: Trajectory) -> None:
        """Take one more trajectory of a stream: written when ``rows_per_file`` of them are there."""
        with self._lock:
            self._waiting.append(trajectory)
            if len(self._waiting) >= self._rows_per_file:
                self._write_stream()

    def update(self) -> None:
        """Write what waits, and the rewards that have become known. The end of a training step is a good time."""
        with self._lock:
            if self._waiting:
                self._write_stream()
            self._write_rewards()

    def close(self) -> None:
        """As `update`; the writer may be used again."""
        self.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_stream(self) -> None:
        path = self.folder / f"{self._stream}_{self._rank}_{self._files:06d}.parquet"
        self._files += 1
        self._write(path, self._waiting)
        self._waiting = []

    def _write(self, path: Path, trajectories: Sequence[Trajectory]) -> None:
        self._write_rewards()
        kept, rewards = tuple(trajectories), _rewards(trajectories)
        written = self._try_to_write(kept, path)
        self._last = _Written(path, kept, rewards) if written else None
        self.lost += 0 if written else len(kept)

    def _write_rewards(self) -> None:
        last = self._last
        if last is None:
            return
        rewards = _rewards(last.trajectories)
        if rewards != last.rewards and self._try_to_write(last.trajectories, last.path):
            last.rewards = rewards

    def _try_to_write(self, trajectories: Sequence[Trajectory], path: Path) -> bool:
        try:
            write_parquet(trajectories, path)
        except Exception as error:  # boundary: sessions and policies hand over any value, and a full disk any error
            text = "%d trajectories could not be written to %s: %s: %s"
            logger.warning(text, len(trajectories), path, type(error).__name__, error)
            return False
        return True


def _rewards(trajectories: Sequence[Trajectory]) -> Rewards:
    return tuple(dict(trajectory.rewards) for trajectory in trajectories)
