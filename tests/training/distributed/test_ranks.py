"""Several processes train one model, whatever the episodes of each do: they finish together, or stop together."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openenv_trl import ProcessProvider
from openenv_trl.rollout import EndReason, read_parquet
from openenv_trl.training.launch import launch_command

WORKER = Path(__file__).parent / "worker.py"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def rounds_url() -> Iterator[str]:
    with ProcessProvider(str(WORKER.parent / "rounds_env")) as servers:
        yield servers.base_urls[0]


class Ranks:
    """A run of several processes, each of which plays the same scenarios in turn; and what each rank says of them."""

    def __init__(self, url: str, model: Path, output: Path, count: int, scenarios: list[dict[str, Any]]) -> None:
        self.count = count
        self.output = output
        settings = {"url": url, "model": str(model), "output": str(output), "scenarios": scenarios}
        file = output / "settings.json"
        file.write_text(json.dumps(settings))
        self.process = subprocess.run(
            launch_command(WORKER, [str(file)], num_processes=count),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def results(self, scenario: str) -> list[dict[str, Any]]:
        paths = [self.output / f"{scenario}_{rank}.json" for rank in range(self.count)]
        assert all(path.is_file() for path in paths), self.process.stderr[-4000:]
        return [json.loads(path.read_text()) for path in paths]

    def assert_calls_were_shared(self, scenario: str, *, at_least: int) -> None:
        """The server was asked as often as the neediest rank needs, each time for as many prompts of each rank."""
        asked, *others = [result["widths"] for result in self.results(scenario)]
        assert len(asked) >= at_least
        assert all(width % self.count == 0 for width in asked), asked
        assert others == [[]] * (self.count - 1), "the first rank asks for all"


@pytest.fixture(scope="module")
def two(rounds_url: str, tiny_policy_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return Ranks(
        rounds_url,
        tiny_policy_path,
        tmp_path_factory.mktemp("two_ranks"),
        2,
        [
            {"name": "unequal", "rounds": [1, 3]},
            {"name": "one_rank_fails", "rounds": [1, 3], "ways": ["none", "reset raises"]},
            {"name": "both_fail", "rounds": [1, 3], "ways": ["reset raises"] * 2, "max_skipped_steps": 1, "steps": 5},
            {"name": "one_rank_refused", "rounds": [1, 3], "ways": ["none", "reset refuses"]},
            {"name": "both_refused", "rounds": [1, 3], "ways": ["reset refuses"] * 2, "max_skipped_steps": 1},
            {"name": "one_rank_raises", "rounds": [3, 3], "urls": {"1": NOWHERE}},
            {"name": "own_models", "rounds": [2, 1], "ways": ["reset raises", "none"], "shared_server": False},
        ],
    )


@pytest.fixture(scope="module")
def three(rounds_url: str, tiny_policy_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return Ranks(
        rounds_url,
        tiny_policy_path,
        tmp_path_factory.mktemp("three_ranks"),
        3,
        [
            {"name": "unequal", "rounds": [1, 4, 2], "steps": 1},
            {"name": "one_rank_raises", "rounds": [1, 4, 2], "urls": {"2": NOWHERE}},
        ],
    )


@pytest.mark.timeout(290)
def test_two_ranks_of_unequal_turns_finish_where_each_generation_is_a_collective_call(two: Ranks) -> None:
    results = two.results("unequal")
    assert [result["error"] for result in results] == [None, None]
    assert results[0]["rewards"] == pytest.approx([1.0, 1.0])
    two.assert_calls_were_shared("unequal", at_least=3 * 2)
    played = read_parquet(two.output / "unequal")
    assert sorted({(t.task.reset["rounds"], len(t.turns)) for t in played}) == [(1, 1), (3, 3)]
    assert results[0]["weights"] == results[1]["weights"], "one model"


@pytest.mark.timeout(290)
def test_three_ranks_of_unequal_turns_finish_too(three: Ranks) -> None:
    results = three.results("unequal")
    assert [result["error"] for result in results] == [None] * 3
    three.assert_calls_were_shared("unequal", at_least=4)


@pytest.mark.timeout(290)
def test_a_rank_all_of_whose_episodes_fail_neither_hangs_the_others_nor_is_learned_from(two: Ranks) -> None:
    results = two.results("one_rank_fails")
    assert [result["error"] for result in results] == [None, None]
    assert results[0]["rewards"] == pytest.approx([1.0, 1.0]), "the sound rank's, and no invented zeros"
    reasons = {t.task.reset["rounds"]: t.end_reason for t in read_parquet(two.output / "one_rank_fails")}
    assert reasons == {1: EndReason.DONE, 3: EndReason.ENVIRONMENT_ERROR}


@pytest.mark.timeout(290)
def test_ranks_on_which_nothing_is_sound_skip_together_and_stop_together(two: Ranks) -> None:
    errors = [result["error"] for result in two.results("both_fail")]
    assert all("RolloutFailureError: 8 of 8 episodes failed" in str(error) for error in errors), errors
    assert all("2 steps in a row" in str(error) and "the deck is missing" in str(error) for error in errors)
    assert len(list((two.output / "both_fail").glob("*.parquet"))) == 4, "two batches of two ranks, and then no more"


@pytest.mark.timeout(290)
def test_a_rank_all_of_whose_rows_are_refused_ends_no_run_that_others_play(two: Ranks) -> None:
    results = two.results("one_rank_refused")
    assert [result["error"] for result in results] == [None, None]
    assert results[0]["rewards"] == pytest.approx([1.0, 1.0])


@pytest.mark.timeout(290)
def test_ranks_all_of_whose_rows_are_refused_end_together_with_the_environments_words(two: Ranks) -> None:
    errors = [str(result["error"]) for result in two.results("both_refused")]
    assert all("ConfigurationError: The environment refused all 4 episodes" in error for error in errors), errors
    assert all("there is no deck of that name" in error for error in errors), errors
    assert len(list((two.output / "both_refused").glob("*.parquet"))) == 2, "one batch of two ranks"


@pytest.mark.timeout(290)
@pytest.mark.parametrize("ranks", ["two", "three"])
def test_a_rank_that_must_stop_tells_the_others_which_stop_too(ranks: str, request: pytest.FixtureRequest) -> None:
    run: Ranks = request.getfixturevalue(ranks)
    *others, last = [str(result["error"]) for result in run.results("one_rank_raises")]
    assert last.startswith("ConnectionFailedError")
    assert all(error.startswith("RolloutFailureError") for error in others)
    assert all(f"Rank {run.count - 1}" in error and "127.0.0.1:9" in error for error in others)


@pytest.mark.timeout(290)
def test_ranks_that_generate_each_with_their_own_model_need_no_lockstep(two: Ranks) -> None:
    assert [result["error"] for result in two.results("own_models")] == [None, None]


@pytest.mark.timeout(290)
def test_a_curriculum_is_at_the_same_level_on_every_rank(two: Ranks) -> None:
    first, second = (result["curriculum"] for result in two.results("one_rank_fails"))
    assert first == second
    assert first[""]["level"] == "second", "also where only one rank had results"


@pytest.mark.timeout(290)
def test_the_processes_end_by_themselves(two: Ranks, three: Ranks) -> None:
    assert (two.process.returncode, three.process.returncode) == (0, 0), two.process.stderr[-3000:]
