"""A group's generations share what the setting says, in every process, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import Task
from openenv_trl.training.columns import attach_columns
from openenv_trl.training.curriculum_settings import CurriculumLevel
from openenv_trl.training.tasks import SharedRandomness, environment_of, tasks_from_prompts, tasks_from_rows

PROMPT = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


def batch(rows: list[dict[str, Any]], generations: int) -> list[Any]:
    prompts = attach_columns([{"prompt": "Play.", **row} for row in rows])["prompt"]
    return [prompt for prompt in prompts for _ in range(generations)]


def tasks(prompts: list[Any], shared: SharedRandomness, **kwargs: Any) -> list[Task]:
    settings = {"group_size": 4, "run_seed": 0, "batch": "train_0", **kwargs}
    return tasks_from_prompts(prompts, shared=shared, **settings)


def by_group(played: list[Task], key: str) -> list[set[Any]]:
    groups: dict[Any, set[Any]] = {}
    for task in played:
        groups.setdefault(task.group, set()).add(task.reset.get(key))
    return list(groups.values())


ROWS = [{"seed": 11}, {"seed": 22}]


def test_a_shared_episode_gives_the_rows_seed_to_all_generations() -> None:
    assert by_group(tasks(batch(ROWS, 4), SharedRandomness.EPISODE), "seed") == [{11}, {22}]


def test_a_shared_task_gives_each_generation_its_own_luck() -> None:
    played = tasks(batch(ROWS, 4), SharedRandomness.TASK)
    assert by_group(played, "task_seed") == [{11}, {22}]
    assert len({task.reset["seed"] for task in played}) == 8


def test_luck_is_new_in_every_batch_and_the_task_is_not() -> None:
    first, second = (tasks(batch(ROWS, 4), SharedRandomness.TASK, batch=f"train_{number}") for number in (0, 1))
    assert {t.reset["seed"] for t in first}.isdisjoint({t.reset["seed"] for t in second})
    assert [t.reset["task_seed"] for t in first] == [t.reset["task_seed"] for t in second]


def test_nothing_shared_gives_each_generation_a_seed() -> None:
    played = tasks(batch(ROWS, 4), SharedRandomness.NONE)
    assert len({task.reset["seed"] for task in played}) == 8
    assert all("task_seed" not in task.reset for task in played)


@pytest.mark.parametrize("shared", [SharedRandomness.EPISODE, SharedRandomness.TASK])
def test_without_a_seed_column_groups_still_share_their_task(shared: SharedRandomness) -> None:
    key = "seed" if shared is SharedRandomness.EPISODE else "task_seed"
    seeds = by_group(tasks(batch([{"level": 1}, {"level": 1}], 4), shared), key)
    assert [len(group) for group in seeds] == [1, 1]
    assert seeds[0] != seeds[1], "two groups of the same prompt are two tasks"


def test_the_rows_other_columns_reach_reset_unchanged() -> None:
    played = tasks(batch([{"seed": 1, "level": "hard", "deck": [1, 2]}], 4), SharedRandomness.EPISODE)
    assert played[0].reset == {"seed": 1, "level": "hard", "deck": [1, 2]}


def test_a_group_that_straddles_two_processes_is_one_group() -> None:
    prompts = batch([{"level": 1}, {"level": 2}], 4)
    whole = tasks(prompts, SharedRandomness.TASK)
    halves = [
        *tasks(prompts[:3], SharedRandomness.TASK, process_index=0),
        *tasks(prompts[3:6], SharedRandomness.TASK, process_index=1),
    ]
    assert [(t.group, t.index, dict(t.reset)) for t in halves] == [(t.group, t.index, dict(t.reset)) for t in whole[:6]]


def test_columns_that_would_not_reach_reset_are_an_error_that_names_the_remedy() -> None:
    prompt = [{"role": "user", "content": "Play."}]
    with pytest.raises(ConfigurationError, match="attach_columns"):
        tasks([prompt] * 4, SharedRandomness.EPISODE, columns_expected=True)
    assert len(tasks([prompt] * 4, SharedRandomness.EPISODE)) == 4


def test_a_rows_own_task_seed_names_its_task() -> None:
    for rows in ([{"task_seed": 5}], [{"task_seed": 5, "seed": 6}]):
        assert by_group(tasks(batch(rows, 4), SharedRandomness.TASK), "task_seed") == [{5}]


ROWS_TO_EVALUATE = [{"prompt": "a", "question": "q1", "seed": 1}, {"prompt": PROMPT, "question": "q2", "seed": 2}]


def test_rows_become_tasks_with_all_their_columns_and_seeds_of_their_own() -> None:
    made = tasks_from_rows(ROWS_TO_EVALUATE, 4, seeds=("evaluation", 0))
    assert [task.reset["question"] for task in made] == ["q1", "q2", "q1", "q2"]
    assert made[0].prompt == [{"role": "user", "content": "a"}]
    assert made[1].prompt == PROMPT
    assert len({task.reset["seed"] for task in made}) == 4
    assert {1, 2}.isdisjoint({task.reset["seed"] for task in made})


def test_rows_may_keep_their_seeds_once() -> None:
    made = tasks_from_rows(ROWS_TO_EVALUATE, 4, seeds=("evaluation", 0), keep_seeds=True)
    assert [task.reset["seed"] for task in made[:2]] == [1, 2]
    assert len({task.reset["seed"] for task in made}) == 4, "a row that is played again is not played alike"


def test_a_group_is_played_at_one_level_in_every_process_and_its_arguments_come_before_the_rows() -> None:
    levels = [CurriculumLevel(name=str(size), reset={"size": size}) for size in range(3)]

    def choose(environment: str, draw: float) -> CurriculumLevel:
        assert (environment, 0 <= draw < 1) == ("", True)
        return levels[int(draw * 3)]

    prompts = batch([{"size": 99, "seed": i} for i in range(12)], 4)
    whole = tasks(prompts, SharedRandomness.NONE, level_for=choose)
    groups = [{task.metadata["level"] for task in whole[i : i + 4]} for i in range(0, 48, 4)]
    assert [len(group) for group in groups] == [1] * 12
    assert len(set.union(*groups)) == 3, "and not all groups at the same"
    assert all(str(task.reset["size"]) == task.metadata["level"] for task in whole)
    parts = [
        task
        for rank in (0, 1)
        for task in tasks(prompts[rank * 24 :][:24], SharedRandomness.NONE, level_for=choose, process_index=rank)
    ]
    assert [task.reset for task in parts] == [task.reset for task in whole]


def test_the_environments_name_is_the_tasks_and_no_argument_of_reset() -> None:
    prompts = batch([{"environment": "balls", "seed": 1}], 4)
    several = tasks(prompts, SharedRandomness.EPISODE, environments=["cards", "balls"])
    assert {environment_of(task) for task in several} == {"balls"}
    assert all("environment" not in task.reset for task in several)
    alone = tasks(prompts, SharedRandomness.EPISODE)
    assert {(environment_of(task), task.reset["environment"]) for task in alone} == {("", "balls")}, "a column as any"
    with pytest.raises(ConfigurationError, match="'dice'"):
        tasks(batch([{"environment": "dice"}], 4), SharedRandomness.EPISODE, environments=["cards", "balls"])
