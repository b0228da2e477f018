"""Trajectories in Parquet: one row each, whole files only, so that a directory of them only ever grows.

Whatever was played can be written: models and environments write integers of any size and broken characters, and a
run must not end because it is recorded. Values nested too deeply for any reader are cut (see `json_text`). A file is
written beside its place and moved there when it is whole: who reads a directory never meets half a file. The columns:
see `openenv_trl.rollout.columns`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.columns import arrow_schema, row_of, trajectory_of
from openenv_trl.rollout.trajectory import Trajectory


def write_parquet(trajectories: Sequence[Trajectory], path: str | Path) -> Path:
    """Write trajectories to a new file.

    Args:
        trajectories: What to write.
        path: The file to write, or a directory, in which the file gets a new name. A file that is there is replaced.

    Returns:
        The file written.

    Raises:
        ConfigurationError: pyarrow is not installed.
        OSError: The file cannot be written.
    """
    arrow, parquet = import_pyarrow()
    path = Path(path)
    target = path if path.suffix == ".parquet" else path / f"{uuid.uuid4().hex}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}.unfinished")
    try:
        table = arrow.Table.from_pylist([row_of(each) for each in trajectories], schema=arrow_schema(arrow))
        parquet.write_table(table, unfinished)
        return unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def read_parquet(path: str | Path) -> list[Trajectory]:
    """Read trajectories from one file, or from all files of a directory in the order of their names.

    Files of older versions are read too: what they lack has its default.

    Raises:
        ConfigurationError: pyarrow is not installed, there is no such file, or a file holds no trajectories that this
            version can read.
    """
    path = Path(path)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not path.exists():
        raise ConfigurationError(f"There are no trajectories at {path}.")
    return [trajectory for file in files for trajectory in _read(file)]


def import_pyarrow() -> tuple[Any, Any]:
    """The modules ``pyarrow`` and ``pyarrow.parquet``.

    Raises:
        ConfigurationError: They are not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigurationError("Trajectories are stored with pyarrow: pip install 'openenv-trl[train]'.") from error
    return pyarrow, pyarrow.parquet


def _read(file: Path) -> list[Trajectory]:
    arrow, parquet = import_pyarrow()
    try:
        # Of this file alone: a directory's name such as "run=3" is no column.
        rows = parquet.ParquetFile(file).read().to_pylist()
    except (arrow.ArrowException, OSError) as error:
        raise ConfigurationError(f"{file} is no whole Parquet file: {error}") from error
    try:
        return [trajectory_of(row) for row in rows]
    except ConfigurationError as error:
        raise ConfigurationError(f"{file} cannot be read. {error}") from error
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        text = f"{file} cannot be read: its columns do not hold trajectories ({type(error).__name__}: {error})"
        raise ConfigurationError(text) from error
