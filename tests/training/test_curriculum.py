"""A curriculum moves by results alone, in steps of one level, and goes on from a checkpoint as if never interrupted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import EndReason, Task, Trajectory, Turn
from openenv_trl.training.curriculum import BandController, Curricula, StageController
from openenv_trl.training.curriculum_settings import (
    BandCurriculum,
    CurriculumLevel,
    StagedCurriculum,
    read_curriculum,
)

LEVELS = tuple(CurriculumLevel(name=name, reset={"size": size}) for size, name in enumerate(("easy", "fair", "hard")))
NAMES = [level.name for level in LEVELS]
EVENTS = st.lists(
    st.tuples(st.sampled_from([*NAMES, "gone"]), st.lists(st.floats(min_value=0, max_value=1), max_size=8)), max_size=30
)
DRAWS = st.floats(min_value=0, max_value=1, exclude_max=True)


def stages(**changes: Any) -> StageController:
    return StageController(StagedCurriculum(levels=LEVELS, **{"window": 4, "threshold": 0.75, **changes}))


def band(**changes: Any) -> BandController:
    return BandController(BandCurriculum(levels=LEVELS, **{"window": 4, **changes}))


@given(events=EVENTS)
def test_stages_are_passed_one_by_one_and_only_by_a_full_window_that_went_well(
    events: list[tuple[str, list[float]]],
) -> None:
    controller, stage, seen = stages(), 0, list[float]()
    for level, results in events:
        controller.observe(level, results)
        for result in results if level == NAMES[stage] else ():
            seen.append(result)
            if len(seen) >= 4 and sum(seen[-4:]) / 4 >= 0.75 and stage < 2:
                stage, seen = stage + 1, []
                break
        assert controller.stage == stage


@given(events=EVENTS, more=EVENTS, draws=st.lists(DRAWS, max_size=5), kind=st.sampled_from([stages, band]))
@settings(deadline=None)
def test_a_restored_controller_decides_as_the_one_that_was_saved(
    events: list[tuple[str, list[float]]], more: list[tuple[str, list[float]]], draws: list[float], kind: Any
) -> None:
    original, restored = kind(), kind()
    for level, results in events:
        original.observe(level, results)
    restored.restore(json.loads(json.dumps(original.state())))
    for level, results in more:
        original.observe(level, results)
        restored.observe(level, results)
    assert [original.level_for(draw) for draw in draws] == [restored.level_for(draw) for draw in draws]
    assert original.state() == restored.state()
    assert original.metrics() == restored.metrics()


@given(draw=DRAWS)
def test_passed_levels_are_reviewed_by_their_fraction_and_later_ones_never_played(draw: float) -> None:
    controller = stages(review_fraction=0.5)
    assert controller.level_for(draw).name == "easy"
    controller.observe("easy", [1.0] * 4)
    assert controller.level_for(draw).name == ("easy" if draw < 0.5 else "fair")
    controller.observe("fair", [1.0] * 4)
    expected = "easy" if draw < 0.25 else "fair" if draw < 0.5 else "hard"
    assert controller.level_for(draw).name == expected
    assert stages(review_fraction=0.0).level_for(draw).name == "easy"


@given(events=EVENTS)
def test_every_level_stays_likely_enough_to_be_known_and_the_band_shares_the_rest(
    events: list[tuple[str, list[float]]],
) -> None:
    controller = band(explore_fraction=0.3)
    for level, results in events:
        controller.observe(level, results)
    probabilities = controller.probabilities()
    assert sum(probabilities.values()) == pytest.approx(1.0)
    assert min(probabilities.values()) >= 0.3 / 3 - 1e-9


def test_the_band_plays_what_is_neither_too_easy_nor_too_hard() -> None:
    controller = band(explore_fraction=0.3)
    assert list(controller.probabilities().values()) == pytest.approx([1 / 3] * 3), "all unknown, all alike"
    controller.observe("easy", [1.0] * 4)
    controller.observe("fair", [1.0, 0.0])
    controller.observe("hard", [0.0] * 4)
    assert controller.probabilities()["fair"] == pytest.approx(0.8)
    controller.observe("fair", [1.0] * 4)
    assert controller.probabilities()["fair"] == pytest.approx(0.1 + 0.7 / 3), "none in the band: the nearest ones"


@given(draws=st.lists(DRAWS, min_size=1))
def test_draws_find_levels_by_their_probabilities(draws: list[float]) -> None:
    controller = band()
    controller.observe("easy", [1.0] * 4)
    bounds, total = {}, 0.0
    for name, probability in controller.probabilities().items():
        bounds[name] = (total, total + probability)
        total += probability
    for draw in draws:
        low, high = bounds[controller.level_for(draw).name]
        assert low - 1e-9 <= draw < high + 1e-9


def trajectory(reason: EndReason, reward: float | None, level: str = "easy", environment: str = "") -> Trajectory:
    task = Task([{"role": "user", "content": "x"}], metadata={"level": level})
    turn = Turn(rewards=[reward], done=True)
    return Trajectory(task, [1], [2], [1], None, [turn], reason, environment=environment)


def test_a_failed_or_unrewarded_episode_is_no_result_and_an_unfinished_one_no_success() -> None:
    curricula = Curricula(StagedCurriculum(levels=LEVELS), [""])
    played = [
        trajectory(EndReason.DONE, 1.0),
        trajectory(EndReason.DONE, 0.5),
        trajectory(EndReason.MAX_TURNS, 1.0),
        trajectory(EndReason.SESSION_LOST, 1.0),
        trajectory(EndReason.DONE, None),
        trajectory(EndReason.DONE, 1.0, level="hard"),
    ]
    assert curricula.outcomes(played) == {"": {"easy": [1.0, 0.0, 0.0], "hard": [1.0]}}
    by_reward = Curricula(StagedCurriculum(levels=LEVELS, measure="reward"), [""])
    assert by_reward.outcomes(played[:3]) == {"": {"easy": [1.0, 0.5, 1.0]}}


def test_an_evaluation_is_always_at_the_last_level() -> None:
    curricula = Curricula({"a": StagedCurriculum(levels=LEVELS)}, ["a", "b"])
    level = curricula.level_for("a", 0.5, training=False)
    assert level is not None
    assert level.name == "hard"
    assert curricula.level_for("b", 0.5, training=True) is None


def test_an_empty_state_begins_anew_and_levels_that_are_gone_are_forgotten() -> None:
    curricula = Curricula(StagedCurriculum(levels=LEVELS, window=1), [""])
    curricula.observe({"": {"easy": [1.0]}})
    assert curricula.state() == {"": {"level": "fair", "recent": []}}
    curricula.restore({"": {"level": "of another file", "recent": [1.0]}})
    assert curricula.state() == {"": {"level": "easy", "recent": []}}
    curricula.restore({})
    assert curricula.state() == {"": {"level": "easy", "recent": []}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"levels": []}, "levels"),
        ({"levels": [{"name": "a"}], "treshold": 1}, "treshold"),
        ({"kind": "band", "levels": [{"name": "a"}], "low": 0.9}, "less than high"),
        ({"kind": "ladder", "levels": [{"name": "a"}]}, "ladder"),
        ({"levels": [{"name": "a", "rest": {}}]}, "levels.0 has no field 'rest' .is 'reset' meant"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_their_place(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read_curriculum(values)


def test_a_curriculum_of_an_environment_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"curricula for \['c'\]"):
        Curricula({"c": StagedCurriculum(levels=LEVELS)}, ["a", "b"])
    with pytest.raises(ConfigurationError, match="by name"):
        Curricula(StagedCurriculum(levels=LEVELS), ["a", "b"])
