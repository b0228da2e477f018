"""The columns of a stored trajectory: their names, their types, and what they say.

`docs/trajectories.md` shows this list; a test compares the two. A column, once written, keeps its name and meaning;
new ones are added, and `SCHEMA_VERSION` rises. Files without a column are read with the field's default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.json_text import json_text
from openenv_trl.rollout.plain_text import encodable
from openenv_trl.rollout.segments import Segment
from openenv_trl.rollout.task import Task
from openenv_trl.rollout.trajectory import EndReason, Trajectory, Turn
from openenv_trl.wire import codec

SCHEMA_VERSION = 2
"""Of the columns below. Files without the column ``schema_version`` are of version 1."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: Its name.
        kind: Its type, as Arrow writes it; ``json`` is a string that holds JSON.
        says: What it holds.
    """

    name: str
    kind: str
    says: str


_REWARDS = "list<struct<source: string, reward: double>>"  # no map: data sets and the hub's viewer know none
_VERSIONS = "list<struct<start: int64, version: int64>>"
_SEGMENTS = "list<struct<prompt_ids, completion_ids, mask, logprobs, versions>>"

COLUMNS = (
    Column("schema_version", "int64", "Version of these columns."),
    Column("environment", "string", "The environment's name in a run of several; empty where there is one."),
    Column("group", "string", "Names the prompt that this episode is one of several generations of."),
    Column("index", "int64", "The place of the task in its group, batch or data set."),
    Column("seed", "int64", "What `reset` got as `seed`; null without one, or where it does not fit in 64 bits."),
    Column("task", "json", "The task: `prompt` messages, `reset` arguments, `group`, `index`, `metadata`."),
    Column("end_reason", "string", "Why the episode ended: a value of `EndReason`."),
    Column("error", "string", "What went wrong, in words, where something did."),
    Column("reward", "double", "The environment's reward: the sum of the step rewards. Null: failed, or none given."),
    Column("rewards", _REWARDS, "The reward by each source, once it is known."),
    Column("attempts", "int64", "Sessions it took; 1 if nothing failed."),
    Column("failures", "list<string>", "How the attempts before the last one failed."),
    Column("turns", "json", "The model's messages: each with text, actions, observations, rewards, times."),
    Column("turn_count", "int64", "How many those are."),
    Column("messages", "json", "The conversation, tool calls with ids and arguments included, for people to read."),
    Column("first_observation", "string", "The observation after `reset`."),
    Column("token_exact", "bool", "Whether the ids are those that were sampled; false: there are none."),
    Column("prompt_ids", "list<int64>", "Token ids of the rendered prompt, first observation included."),
    Column("completion_ids", "list<int64>", "Token ids after it: sampled by the model, or rendered from observations."),
    Column("mask", "list<int8>", "1 where the model sampled the id, 0 where the environment wrote it."),
    Column("logprobs", "list<double>", "The sampler's log-prob of each id, 0.0 where the mask is 0; null: not given."),
    Column("versions", _VERSIONS, "From which place in `completion_ids` on which weights sampled."),
    Column("earlier", _SEGMENTS, "Rows before the last one, where the model is not shown its earlier thoughts."),
    Column("model_tokens", "int64", "Ids with mask 1, those of the earlier rows included."),
    Column("marks_broken", "int64", "Marks of control tokens in the environment's texts that were broken."),
    Column("base_url", "string", "The server of the last attempt."),
    Column("started_s", "double", "Seconds from the run's start to this episode's."),
    Column("ended_s", "double", "Seconds from the run's start to this episode's end."),
    Column("waiting_s", "double", "Seconds spent waiting for sessions, all attempts together."),
    Column("reset_s", "double", "Seconds in the last attempt's `reset`."),
    Column("generate_s", "double", "Seconds spent waiting for the model, in the last attempt."),
    Column("environment_s", "double", "Seconds in `step`, in the last attempt."),
)
"""All columns, in the order in which they are written."""

_NEEDED = ("task", "prompt_ids", "completion_ids", "mask", "turns", "end_reason")
_INT64 = range(-(2**63), 2**63)


def arrow_schema(arrow: Any) -> Any:
    """The columns as a schema of pyarrow's.

    Args:
        arrow: The module ``pyarrow``, which is imported where trajectories are stored only.
    """
    text, whole, number = arrow.string(), arrow.int64(), arrow.float64()
    versions = arrow.list_(arrow.struct([arrow.field("start", whole), arrow.field("version", whole)]))
    ids, mask, logprobs = arrow.list_(whole), arrow.list_(arrow.int8()), arrow.list_(number)
    segment = {"prompt_ids": ids, "completion_ids": ids, "mask": mask, "logprobs": logprobs, "versions": versions}
    kinds = {
        "json": text,
        "string": text,
        "int64": whole,
        "double": number,
        "bool": arrow.bool_(),
        "list<string>": arrow.list_(text),
        "list<int64>": ids,
        "list<int8>": mask,
        "list<double>": logprobs,
        _REWARDS: arrow.list_(arrow.struct([arrow.field("source", text), arrow.field("reward", number)])),
        _VERSIONS: versions,
        _SEGMENTS: arrow.list_(arrow.struct([arrow.field(name, kind) for name, kind in segment.items()])),
    }
    return arrow.schema([arrow.field(column.name, kinds[column.kind]) for column in COLUMNS])


def row_of(trajectory: Trajectory) -> dict[str, Any]:
    """A trajectory as values of the columns. Never raises for what was played."""
    group, seed = trajectory.task.group, trajectory.task.reset.get("seed")
    row = _values(trajectory) | {
        "schema_version": SCHEMA_VERSION,
        "group": None if group is None else str(group),
        "index": trajectory.task.index,
        "seed": int(seed) if isinstance(seed, int) and seed in _INT64 else None,
        "task": json_text(_task_values(trajectory.task)),
        "end_reason": trajectory.end_reason.value,
        "reward": trajectory.reward,
        "rewards": [{"source": encodable(n), "reward": _number(r)} for n, r in trajectory.rewards.items()],
        "failures": [encodable(text) for text in trajectory.failures],
        "turns": json_text([_values(turn) for turn in trajectory.turns]),
        "turn_count": len(trajectory.turns),
        "messages": json_text(trajectory.messages),
        "versions": _spans(trajectory.versions),
        "earlier": [_segment_values(segment) for segment in trajectory.earlier],
        "model_tokens": sum(trajectory.mask) + sum(sum(segment.mask) for segment in trajectory.earlier),
        "generate_s": trajectory.generate_s,
        "environment_s": trajectory.environment_s,
    }
    return {name: encodable(value) if isinstance(value, str) else value for name, value in row.items()}


def trajectory_of(row: dict[str, Any]) -> Trajectory:
    """A trajectory from the values of a row, of this version of the columns or another.

    Raises:
        ConfigurationError: The row is none of a trajectory, or of a newer version that this one cannot read.
    """
    missing = [name for name in _NEEDED if row.get(name) is None]
    if missing:
        raise ConfigurationError(f"These are no stored trajectories: there is no column {', '.join(missing)}.")
    values: dict[str, Any] = _known(row, Trajectory)
    if values.get("rewards") is not None:
        values["rewards"] = {each["source"]: each["reward"] for each in values["rewards"]}
    if values.get("versions") is not None:
        values["versions"] = _pairs(values["versions"])
    if values.get("earlier") is not None:
        values["earlier"] = [_segment(each) for each in values["earlier"]]
    values |= {
        "task": Task(**_known(codec.decode(row["task"]), Task)),
        "turns": [Turn(**_known(turn, Turn)) for turn in codec.decode(row["turns"])],
        "messages": codec.decode(row.get("messages") or "[]"),
        "end_reason": _end_reason(row["end_reason"]),
        "logprobs": row.get("logprobs"),
        "error": row.get("error"),
    }
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None or name in _MAY_BE_NULL}
    return Trajectory(**given)


_MAY_BE_NULL = ("logprobs", "error")


def _spans(versions: Sequence[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"start": start, "version": version} for start, version in versions]


def _pairs(spans: Sequence[dict[str, int]]) -> list[tuple[int, int]]:
    return [(span["start"], span["version"]) for span in spans]


def _segment_values(segment: Segment) -> dict[str, Any]:
    return {
        "prompt_ids": segment.prompt_ids,
        "completion_ids": segment.completion_ids,
        "mask": segment.mask,
        "logprobs": segment.logprobs,
        "versions": _spans(segment.versions),
    }


def _segment(values: dict[str, Any]) -> Segment:
    given: dict[str, Any] = {**values, "versions": _pairs(values["versions"])}
    return Segment(**given)


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError):  # reward functions are anyone's code
        return None


def _end_reason(value: str) -> EndReason:
    try:
        return EndReason(value)
    except ValueError:
        raise ConfigurationError(
            f"A trajectory ended for the reason '{value}', which this version does not know: it was stored by a newer "
            "one. Read it with that: pip install --upgrade openenv-trl."
        ) from None


def _values(of: Trajectory | Turn | Task) -> dict[str, Any]:
    """The fields and their values. Not ``asdict``: it copies deeply, and fails where values nest deeply."""
    return {field.name: getattr(of, field.name) for field in fields(of)}


def _known(values: dict[str, Any], kind: type[Trajectory | Turn | Task]) -> dict[str, Any]:
    """The values of fields that this version has."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in values.items() if name in names}


def _task_values(task: Task) -> dict[str, Any]:
    prompt = [dict(message) for message in task.prompt]
    return _values(task) | {"prompt": prompt, "reset": dict(task.reset), "metadata": dict(task.metadata)}
