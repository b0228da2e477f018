"""Rubrics: composed, asked for their parts, synchronous and asynchronous alike."""

from __future__ import annotations

from collections.abc import Awaitable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from openenv_trl.rubrics.rubric import Gate, Rubric, RubricDict, RubricList, Sequential, WeightedSum
from openenv_trl.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric


class Fixed(Rubric):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value
        self.calls = 0

    def forward(self, action: Any, observation: Any) -> float:
        self.calls += 1
        return self.value


class Later(Fixed):
    async def forward(self, action: Any, observation: Any) -> float:  # type: ignore[override]
        await anyio.lowlevel.checkpoint()
        return super().forward(action, observation)


class Careless(Rubric):
    """Its author forgot super().__init__()."""

    def __init__(self) -> None:
        self.part = Fixed(0.25)

    def forward(self, action: Any, observation: Any) -> Any:
        return self.part(action, observation)


async def _score(rubric: Rubric) -> float:
    score = rubric(None, None)
    return await score if isinstance(score, Awaitable) else score


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Fixed, Later])
async def test_containers_score_synchronous_and_asynchronous_rubrics_alike(kind: type[Fixed]) -> None:
    assert await _score(Sequential(kind(1.0), kind(0.5))) == 0.5
    assert await _score(Sequential()) == 1.0
    assert await _score(Gate(kind(0.5))) == 0.0
    assert await _score(Gate(kind(0.5), threshold=0.5)) == 0.5
    assert await _score(WeightedSum([kind(1.0), Fixed(0.5)], [0.25, 0.75])) == 0.625


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Fixed, Later])
async def test_a_sequence_asks_nobody_after_a_zero(kind: type[Fixed]) -> None:
    last = kind(1.0)
    assert await _score(Sequential(kind(1.0), kind(0.0), last)) == 0.0
    assert last.calls == 0


@pytest.mark.anyio
async def test_asynchronous_parts_of_a_sum_are_awaited_together() -> None:
    everyone_is_here = anyio.Event()
    waiting: list[int] = []

    class Meeting(Rubric):
        async def forward(self, action: Any, observation: Any) -> float:
            waiting.append(1)
            if len(waiting) == 2:
                everyone_is_here.set()
            await everyone_is_here.wait()
            return 1.0

    with anyio.fail_after(20):
        assert await _score(WeightedSum([Meeting(), Meeting()], [0.5, 0.5])) == 1.0


def test_a_synchronous_rubric_gives_a_float_and_remembers_it() -> None:
    rubric = Gate(Fixed(1.0))
    assert rubric.last_score is None
    assert rubric(None, None) == 1.0
    assert (rubric.last_score, rubric.rubric.last_score) == (1.0, 1.0)


def test_parts_have_dotted_names() -> None:
    rubric = WeightedSum([Fixed(1.0), Sequential(Fixed(1.0), Gate(Fixed(1.0)))], [0.5, 0.5])
    names = ["rubric_0", "rubric_1", "rubric_1.rubric_0", "rubric_1.rubric_1", "rubric_1.rubric_1.rubric"]
    assert [name for name, _ in rubric.named_rubrics()] == names
    assert isinstance(rubric.get_rubric("rubric_1.rubric_1"), Gate)
    with pytest.raises(KeyError, match=r"rubric_1\.rubric_0"):
        rubric.get_rubric("nothing")


def test_a_part_is_registered_by_assignment_and_replaced_by_another() -> None:
    rubric = Careless()
    assert [name for name, _ in rubric.named_children()] == ["part"]
    rubric.part = Fixed(0.5)
    assert rubric(None, None) == 0.5
    rubric.part = None  # type: ignore[assignment]
    assert list(rubric.children()) == []


def test_lists_and_dicts_of_rubrics_have_no_score_of_their_own() -> None:
    numbered, named = RubricList([Fixed(1.0)]), RubricDict({"a": Fixed(1.0)})
    named["b"] = Fixed(2.0)
    assert (list(named.keys()), len(numbered), "b" in named) == (["a", "b"], 1, True)
    for rubric in (numbered, named):
        with pytest.raises(NotImplementedError, match="parent"):
            rubric(None, None)


@pytest.mark.parametrize("weights", [[0.5], [0.5, 0.4]])
def test_weights_must_fit(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        WeightedSum([Fixed(1.0), Fixed(1.0)], weights)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Fixed, Later])
async def test_hooks_see_each_scoring(kind: type[Fixed]) -> None:
    seen: list[Any] = []
    rubric = kind(0.5)
    rubric.register_forward_pre_hook(lambda it, action, observation: seen.append(("before", it is rubric)))
    rubric.register_forward_hook(lambda it, action, observation, score: seen.append(("after", score)))
    await _score(rubric)
    assert seen == [("before", True), ("after", 0.5)]


class Length(ExponentialDiscountingTrajectoryRubric):
    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        return float(len(trajectory))


def test_an_episodes_score_comes_at_its_end_and_is_shared_out_over_its_steps() -> None:
    rubric = Length(gamma=0.5, intermediate_reward=0.25)
    assert rubric("a", SimpleNamespace(done=False)) == 0.25
    assert rubric("b", SimpleNamespace(done=True)) == 2.0
    assert rubric.compute_step_rewards() == [1.0, 2.0]
    Gate(rubric).reset()
    assert (rubric.trajectory, rubric.compute_step_rewards()) == ([], [])
    other = Length()
    other.load_state_dict(rubric.state_dict())
    assert (other.gamma, other.intermediate_reward) == (0.5, 0.25)
    with pytest.raises(ValueError, match="gamma"):
        Length(gamma=2)


@pytest.mark.parametrize("number", [np.float32, np.int64, np.asarray, Fraction])
def test_a_score_of_another_librarys_number_is_shared_out_too(number: Any) -> None:
    class Counted(Length):
        def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Any:
            return number(len(trajectory))

    rubric = Counted(gamma=0.5)
    rubric("a", SimpleNamespace(done=False))
    rubric("b", SimpleNamespace(done=True))
    assert rubric.compute_step_rewards() == [1.0, 2.0]
