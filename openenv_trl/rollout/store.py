"""Trajectories in Parquet: one row each, one file a call, so that a directory of them only ever grows.

Whatever was played can be written: models and environments write integers of any size and broken characters, and a
run must not end because it is recorded. Values nested too deeply for any reader are cut (see `json_text`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.json_text import json_text
from openenv_trl.rollout.plain_text import encodable
from openenv_trl.rollout.task import Task
from openenv_trl.rollout.trajectory import EndReason, Trajectory, Turn
from openenv_trl.wire import codec

_JSON_COLUMNS = ("task", "turns", "messages")
"""Columns whose values are nested, and stored as JSON text."""


def write_parquet(trajectories: Sequence[Trajectory], path: str | Path) -> Path:
    """Write trajectories to a new file.

    Beside the fields of `Trajectory`, each row has its ``reward``, ``group`` and ``index`` as columns, to query by.

    Args:
        trajectories: What to write.
        path: The file to write, or a directory, in which the file gets a new name.

    Returns:
        The file written.

    Raises:
        ConfigurationError: pyarrow is not installed.
    """
    arrow, parquet = _pyarrow()
    path = Path(path)
    target = path if path.suffix == ".parquet" else path / f"{uuid.uuid4().hex}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    schema = _schema(arrow)
    unfinished = target.with_suffix(".unfinished")
    parquet.write_table(arrow.Table.from_pylist([_row(t) for t in trajectories], schema=schema), unfinished)
    return unfinished.replace(target)


def read_parquet(path: str | Path) -> list[Trajectory]:
    """Read trajectories from one file, or from all files of a directory in the order of their names.

    Raises:
        ConfigurationError: pyarrow is not installed, or there is no such file.
    """
    _, parquet = _pyarrow()
    path = Path(path)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not path.exists():
        raise ConfigurationError(f"There are no trajectories at {path}.")
    return [_trajectory(row) for file in files for row in parquet.read_table(file).to_pylist()]


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigurationError("Trajectories are stored with pyarrow: pip install 'openenv-trl[train]'.") from error
    return pyarrow, pyarrow.parquet


def _schema(arrow: Any) -> Any:
    ids, text, seconds = arrow.list_(arrow.int64()), arrow.string(), arrow.float64()
    types: dict[str, Any] = {
        "task": text,
        "group": text,
        "index": arrow.int64(),
        "prompt_ids": ids,
        "completion_ids": ids,
        "mask": arrow.list_(arrow.int8()),
        "logprobs": arrow.list_(arrow.float64()),
        "turns": text,
        "end_reason": text,
        "error": text,
        "attempts": arrow.int64(),
        "first_observation": text,
        "base_url": text,
        "started_s": seconds,
        "ended_s": seconds,
        "waiting_s": seconds,
        "reset_s": seconds,
        "messages": text,
        "marks_broken": arrow.int64(),
        "reward": arrow.float64(),
    }
    return arrow.schema([arrow.field(name, kind) for name, kind in types.items()])


def _row(trajectory: Trajectory) -> dict[str, Any]:
    row = _values(trajectory)
    row["task"] = json_text(_task_values(trajectory.task))
    row["turns"] = json_text([_values(turn) for turn in trajectory.turns])
    row["messages"] = json_text(trajectory.messages)
    row["end_reason"] = trajectory.end_reason.value
    group = trajectory.task.group
    row |= {
        "group": None if group is None else str(group),
        "index": trajectory.task.index,
        "reward": trajectory.reward,
    }
    return {name: encodable(value) if isinstance(value, str) else value for name, value in row.items()}


def _values(of: Trajectory | Turn | Task) -> dict[str, Any]:
    """The fields and their values. Not ``asdict``: it copies deeply, and fails where values nest deeply."""
    return {field.name: getattr(of, field.name) for field in fields(of)}


def _task_values(task: Task) -> dict[str, Any]:
    prompt = [dict(message) for message in task.prompt]
    return _values(task) | {"prompt": prompt, "reset": dict(task.reset), "metadata": dict(task.metadata)}


def _trajectory(row: dict[str, Any]) -> Trajectory:
    known = {field.name for field in fields(Trajectory)}
    values = {name: value for name, value in row.items() if name in known}
    task, turns, messages = (codec.decode(row[name]) for name in _JSON_COLUMNS)
    values |= {"task": Task(**task), "turns": [Turn(**turn) for turn in turns], "messages": messages}
    values["end_reason"] = EndReason(row["end_reason"])
    return Trajectory(**values)
