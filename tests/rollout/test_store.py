"""Promises of stored trajectories: written while a run goes on, by several processes, and read by any version."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.compute
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import EndReason, Task, Trajectory, Turn, read_parquet, write_parquet
from openenv_trl.rollout.columns import COLUMNS, SCHEMA_VERSION, arrow_schema
from openenv_trl.rollout.segments import Segment
from openenv_trl.rollout.trajectory_writer import TrajectoryWriter

PROMPT = [{"role": "user", "content": "Play."}]


def make(seed: int = 0, **fields: Any) -> Trajectory:
    chosen: dict[str, Any] = {
        "task": Task(PROMPT, {"seed": seed}, group="a"),
        "prompt_ids": [1, 2],
        "completion_ids": [3, 4, 5],
        "mask": [1, 0, 1],
        "logprobs": [-0.5, 0.0, -0.25],
        "turns": [Turn(text="t", actions=[{"a": seed}], rewards=[1.0], observations=["o"])],
        "end_reason": EndReason.DONE,
        **fields,
    }
    return Trajectory(**chosen)


FULL: dict[str, Any] = {
    "token_exact": False,
    "versions": [(0, 7), (2, 8)],
    "environment": "blackjack",
    "rewards": {"environment": 1.0, "answer/format": None, "größe": -0.5},
    "failures": ["session_lost: gone", "step_timeout: slow"],
    "earlier": [Segment([1], [2, 3], [1, 1], [-0.5, -1.5], [(0, 7)]), Segment([1, 2, 3], [9], [1], None)],
    "attempts": 3,
    "waiting_s": 0.25,
}


def test_each_field_comes_back_as_it_was(tmp_path: Path) -> None:
    trajectories = [make(2**70, **FULL), make(rewards={})]
    assert read_parquet(write_parquet(trajectories, tmp_path)) == trajectories


TEXT = st.text(st.characters(exclude_categories=("Cs",)))
NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=40, deadline=None)
@given(
    rewards=st.dictionaries(TEXT, NUMBERS),
    failures=st.lists(TEXT),
    versions=st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40))),
    metadata=st.dictionaries(TEXT, st.recursive(NUMBERS | TEXT | st.integers() | st.booleans(), st.lists)),
    observations=st.lists(TEXT),
    reason=st.sampled_from(EndReason),
)
def test_whatever_the_fields_hold_it_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    rewards: Any,
    failures: Any,
    versions: Any,
    metadata: Any,
    observations: Any,
    reason: EndReason,
) -> None:
    trajectory = make(
        task=Task(PROMPT, {"seed": 1}, metadata=metadata),
        rewards=rewards,
        failures=failures,
        versions=versions,
        turns=[Turn(observations=observations, problem_places=[0])],
        end_reason=reason,
    )
    file = tmp_path_factory.mktemp("one") / "one.parquet"
    assert read_parquet(write_parquet([trajectory], file)) == [trajectory]


def test_rewards_by_source_can_be_queried_without_this_package(tmp_path: Path) -> None:
    import datasets

    folder = tmp_path / "trajectories"
    write_parquet([make(i, rewards={"environment": float(i), "format": -0.5}) for i in range(3)], folder)
    table = datasets.load_dataset("parquet", data_files=str(folder / "*.parquet"), cache_dir=str(tmp_path / "cache"))
    rows = table["train"].select_columns(["seed", "rewards"]).to_list()
    found = {row["seed"]: {each["source"]: each["reward"] for each in row["rewards"]} for row in rows}
    assert found == {seed: {"environment": float(seed), "format": -0.5} for seed in range(3)}
    flat = arrow.compute.list_flatten(parquet.read_table(folder).column("rewards"))
    sources, values = (arrow.compute.struct_field(flat, name).to_pylist() for name in ("source", "reward"))
    assert [value for source, value in zip(sources, values, strict=True) if source == "environment"] == [0.0, 1.0, 2.0]


FIRST_VERSION = ["task", "group", "index", "prompt_ids", "completion_ids", "mask", "logprobs", "turns", "end_reason"]
FIRST_VERSION += ["error", "attempts", "first_observation", "base_url", "started_s", "ended_s", "waiting_s", "reset_s"]
FIRST_VERSION += ["messages", "marks_broken", "reward"]


def test_a_file_of_the_first_version_is_read_with_defaults_for_what_it_lacks(tmp_path: Path) -> None:
    table = parquet.read_table(write_parquet([make(5, waiting_s=0.5)], tmp_path / "new")).select(FIRST_VERSION)
    turns = [{k: v for k, v in turn.items() if k != "problem_places"} for turn in json.loads(table["turns"][0].as_py())]
    table = table.set_column(FIRST_VERSION.index("turns"), "turns", arrow.array([json.dumps(turns)]))
    (tmp_path / "mixed").mkdir()
    parquet.write_table(table, tmp_path / "mixed" / "a.parquet")
    write_parquet([make(6, **FULL)], tmp_path / "mixed" / "b.parquet")
    assert read_parquet(tmp_path / "mixed") == [make(5, waiting_s=0.5), make(6, **FULL)]


def test_what_a_newer_version_added_is_left_aside(tmp_path: Path) -> None:
    table = parquet.read_table(write_parquet([make()], tmp_path / "old.parquet"))
    turns = [turn | {"mood": "good"} for turn in json.loads(table["turns"][0].as_py())]
    table = table.set_column(table.schema.get_field_index("turns"), "turns", arrow.array([json.dumps(turns)]))
    table = table.append_column("mood", arrow.array(["good"]))
    parquet.write_table(table, tmp_path / "newer.parquet")
    assert read_parquet(tmp_path / "newer.parquet") == [make()]


def test_an_end_that_only_a_newer_version_knows_is_said(tmp_path: Path) -> None:
    table = parquet.read_table(write_parquet([make()], tmp_path / "old.parquet"))
    place = table.schema.get_field_index("end_reason")
    parquet.write_table(table.set_column(place, "end_reason", arrow.array(["bored"])), tmp_path / "newer.parquet")
    with pytest.raises(ConfigurationError, match=r"newer.parquet.*'bored'.*newer"):
        read_parquet(tmp_path / "newer.parquet")


def test_a_file_that_is_no_trajectories_is_named(tmp_path: Path) -> None:
    parquet.write_table(arrow.table({"x": [1]}), tmp_path / "other.parquet")
    (tmp_path / "half.parquet").write_bytes((tmp_path / "other.parquet").read_bytes()[:40])
    with pytest.raises(ConfigurationError, match=r"other.parquet.*no column task"):
        read_parquet(tmp_path / "other.parquet")
    with pytest.raises(ConfigurationError, match=r"half.parquet is no whole Parquet file"):
        read_parquet(tmp_path / "half.parquet")


def test_a_directory_with_an_equals_sign_adds_no_column(tmp_path: Path) -> None:
    assert read_parquet(write_parquet([make()], tmp_path / "index=3" / "x.parquet")) == [make()]


def test_the_page_names_every_column_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trajectories.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    table = [tuple(cell.strip("|` ") if n < 2 else cell.strip("| ") for n, cell in enumerate(row)) for row in rows]
    assert [row for row in table if row[0] in {c.name for c in COLUMNS}] == [(c.name, c.kind, c.says) for c in COLUMNS]
    assert {row[0] for row in table} == {column.name for column in COLUMNS}
    assert arrow_schema(arrow).names == [column.name for column in COLUMNS]


def test_no_field_of_a_trajectory_is_lost() -> None:
    not_stored = {"sampled"}  # fingerprints of the run that sampled, of no use afterwards
    assert {field.name for field in fields(Trajectory)} - {column.name for column in COLUMNS} == not_stored


def test_each_file_says_its_version(tmp_path: Path) -> None:
    assert parquet.read_table(write_parquet([make()], tmp_path))["schema_version"].to_pylist() == [SCHEMA_VERSION]


def test_a_batch_is_on_disk_at_once_and_its_rewards_when_they_are_known(tmp_path: Path) -> None:
    batch = [make(i) for i in range(4)]
    writer = TrajectoryWriter(tmp_path, rank=1)
    path = writer.write(batch, "train_000001_0")
    assert path.name == "train_000001_0_1.parquet"
    assert read_parquet(path) == batch
    for trajectory in batch:
        trajectory.rewards["judge"] = 0.5
    assert [t.rewards for t in read_parquet(path)] == [{}] * 4
    writer.update()
    assert [t.rewards for t in read_parquet(path)] == [{"judge": 0.5}] * 4


@pytest.mark.parametrize("settle", ["write", "close"])
def test_rewards_are_stored_also_where_nobody_says_that_a_step_ended(tmp_path: Path, settle: str) -> None:
    batch = [make(1)]
    writer = TrajectoryWriter(tmp_path)
    path = writer.write(batch, "first")
    batch[0].rewards["judge"] = 0.5
    writer.write([make(2)], "second") if settle == "write" else writer.close()
    assert read_parquet(path)[0].rewards == {"judge": 0.5}


def test_a_file_without_news_is_not_written_again(tmp_path: Path) -> None:
    writer = TrajectoryWriter(tmp_path)
    path = writer.write([make(1, rewards={"environment": 1.0})], "first")
    before = path.stat().st_ino  # a file written again is another one, moved to its place
    writer.update()
    writer.close()
    assert path.stat().st_ino == before


def test_a_stream_is_written_in_the_order_in_which_it_came_and_the_rest_at_the_end(tmp_path: Path) -> None:
    with TrajectoryWriter(tmp_path, rows_per_file=4) as writer:
        for seed in range(10):
            writer.add(make(seed))
        assert [t.seed for t in read_parquet(tmp_path)] == list(range(8))
    assert [t.seed for t in read_parquet(tmp_path)] == list(range(10))
    assert len(list(tmp_path.iterdir())) == 3


def test_a_disk_that_fails_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "trajectories"
    writer = TrajectoryWriter(folder, rows_per_file=1)
    folder.rmdir()
    folder.touch()
    writer.add(make())
    writer.write([make(), make()], "batch")
    assert writer.lost == 3
    assert "could not be written" in caplog.text
    folder.unlink()
    writer.add(make(9))
    assert [t.seed for t in read_parquet(folder)] == [9]


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        TrajectoryWriter(tmp_path / "file" / "folder")


STREAMS = """
import itertools, sys
from openenv_trl.rollout import EndReason, Task, Trajectory, Turn
from openenv_trl.rollout.trajectory_writer import TrajectoryWriter

folder, rank, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
writer = TrajectoryWriter(folder, rank=rank, rows_per_file=8)
for seed in itertools.count():
    if seed == most:
        break
    task = Task([{"role": "user", "content": "Play."}], {"seed": seed})
    writer.add(Trajectory(task, [1] * 200, [2] * 500, [1] * 500, None, [Turn(text="x" * 500)], EndReason.DONE))
    print(seed, flush=True)
writer.close()
"""


def stream(folder: Path, rank: int, most: int = -1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STREAMS, str(folder), str(rank), str(most)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_what_was_written_is_whole_after_the_process_is_killed(tmp_path: Path) -> None:
    process = stream(tmp_path, 0)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 300:  # in the middle of writing, as like as not
            os.kill(process.pid, signal.SIGKILL)
            break
    told = [300, *map(int, process.stdout.read().split())]
    process.wait()
    seeds = [trajectory.seed for trajectory in read_parquet(tmp_path)]
    assert seeds == list(range(len(seeds))), "no hole, none twice"
    assert told[-1] + 1 - len(seeds) <= 8, "no more is lost than one file holds"


def test_processes_do_not_overwrite_one_another_also_not_of_one_rank(tmp_path: Path) -> None:
    processes = [stream(tmp_path, rank, 20) for rank in (0, 1, 1)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert sorted(t.seed or 0 for t in read_parquet(tmp_path)) == sorted([*range(20)] * 3)


def test_a_seed_that_is_true_is_a_number(tmp_path: Path) -> None:
    task = Task([{"role": "user", "content": "x"}], {"seed": True})
    played = Trajectory(task, [1], [2], [1], [0.0], [], EndReason.DONE)
    (read,) = read_parquet(write_parquet([played], tmp_path))
    assert read.task.reset == {"seed": True}


@pytest.mark.parametrize(
    "change",
    [
        {"completion_ids": [2**70]},
        {"mask": [300]},
        {"failures": [None]},
        {"error": ValueError("x")},
        {"versions": ["x"]},
    ],
)
def test_what_cannot_be_written_ends_no_run(change: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fields = {"prompt_ids": [1], "completion_ids": [2], "mask": [1], "logprobs": None, "turns": []}
    odd = Trajectory(Task([{"role": "user", "content": "x"}]), **{**fields, "end_reason": EndReason.DONE, **change})
    with TrajectoryWriter(tmp_path) as writer:
        writer.write([odd], "batch")
    assert writer.lost == 1
    assert "1 trajectories could not be written" in caplog.text


@pytest.mark.parametrize(
    ("column", "text"),
    [*[(column, text) for column in ("task", "turns") for text in ("{", "[null]", "null", "3")], ("messages", "{")],
)
def test_a_file_whose_columns_hold_something_else_is_named(column: str, text: str, tmp_path: Path) -> None:
    played = Trajectory(Task([{"role": "user", "content": "x"}]), [1], [2], [1], None, [Turn()], EndReason.DONE)
    file = write_parquet([played], tmp_path)
    table = parquet.read_table(file)
    at = table.column_names.index(column)
    parquet.write_table(table.set_column(at, column, arrow.array([text])), file)
    with pytest.raises(ConfigurationError, match=re.escape(str(file))):
        read_parquet(file)


def test_a_file_that_is_broken_inside_is_named(tmp_path: Path) -> None:
    file = tmp_path / "odd.parquet"
    file.write_bytes(b"PAR1" + b"\0" * 50 + b"PAR1")
    with pytest.raises(ConfigurationError, match=r"odd\.parquet is no whole Parquet file"):
        read_parquet(file)
