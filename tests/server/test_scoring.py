"""A transform and a rubric given to an environment are applied by its server: once, whoever does it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from openenv_trl.environment import Environment, prepare, tool
from openenv_trl.rubrics.rubric import Rubric, WeightedSum
from openenv_trl.rubrics.trajectory import TrajectoryRubric
from openenv_trl.server import create_app
from openenv_trl.transform import CompositeTransform, NullTransform, Transform
from openenv_trl.types import Action, Observation, State


class Mark(Transform[Observation]):
    def __call__(self, observation: Observation) -> Observation:
        observation.metadata["marks"] = observation.metadata.get("marks", 0) + 1
        return observation


class Count(Rubric):
    """Scores how often it was asked: applied twice, it would say 2."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, action: Any, observation: Any) -> Any:
        self.calls += 1
        return float(self.calls)

    def reset(self) -> None:
        self.calls = 0


class CountLater(Count):
    async def forward(self, action: Any, observation: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return super().forward(action, observation)


class Quiet(Environment[Action, Observation, State]):
    """Leaves everything to the server; and, like many, does not call super().__init__()."""

    rubric_class: type[Count] = Count

    def __init__(self) -> None:
        self.rubric = self.rubric_class()
        self.transform = CompositeTransform([Mark(), NullTransform()])

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return State()


class Diligent(Quiet):
    def __init__(self) -> None:
        Environment.__init__(self, transform=Mark(), rubric=self.rubric_class())

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:
        self._reset_rubric()
        return self._apply_transform(Observation())

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        observation = Observation()
        observation.reward = self._apply_rubric(action, observation)
        return self._apply_transform(observation)


class QuietAsync(Quiet):
    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **kw: Any) -> Observation:
        return self.reset(seed, episode_id)

    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return self.step(action)


class DiligentAsync(Diligent):
    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **kw: Any) -> Observation:
        await self._reset_rubric_async()
        return self._apply_transform(Observation())

    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        observation = Observation()
        observation.reward = await self._apply_rubric_async(action, observation)
        return self._apply_transform(observation)


@pytest.mark.parametrize("rubric_class", [Count, CountLater])
@pytest.mark.parametrize("base", [Quiet, Diligent, QuietAsync, DiligentAsync])
def test_rubric_and_transform_are_applied_once_whoever_does_it(
    base: type[Quiet], rubric_class: type[Count], serve: Callable[..., Any], ask: Callable[..., str]
) -> None:
    environment_class = type("Scored", (base,), {"rubric_class": rubric_class})
    connection = serve(create_app(environment_class, Action, Observation)).socket()
    for _ in range(2):
        reset = json.loads(ask(connection, '{"type":"reset"}'))["data"]
        assert (reset["reward"], reset["metadata"]) == (None, {"marks": 1})
        for number in (1.0, 2.0):
            step = json.loads(ask(connection, '{"type":"step","data":{}}'))["data"]
            assert step["reward"] == number
            assert step["metadata"] == {"rubric": {rubric_class.__name__: number}, "marks": 1}


@pytest.mark.parametrize("rubric_class", [Count, CountLater])
def test_a_tool_call_is_a_step_and_scored_like_one(
    rubric_class: type[Count], serve: Callable[..., Any], ask: Callable[..., str]
) -> None:
    class Tooled(Quiet):
        def __init__(self) -> None:
            Environment.__init__(self, rubric=rubric_class())

        @tool
        def look(self) -> dict[str, int]:
            return {"seen": 1}

        @tool
        async def move(self) -> Observation:
            return Observation()

    connection = serve(create_app(Tooled, Action, Observation)).socket()
    for number, name in enumerate(("look", "move"), 1):
        action = {"type": "call_tool", "tool_name": name}
        step = json.loads(ask(connection, json.dumps({"type": "step", "data": action})))["data"]
        assert step["reward"] == number
    listed = json.loads(ask(connection, '{"type":"step","data":{"type":"list_tools"}}'))["data"]
    assert listed["reward"] is None


def test_named_scores_are_in_the_metadata() -> None:
    class Parts(Quiet):
        def __init__(self) -> None:
            Environment.__init__(self, rubric=WeightedSum([Count(), Count()], [0.5, 0.5]))

    environment = Parts()
    prepare(environment)
    assert environment.step(Action()).metadata["rubric"] == {"WeightedSum": 1.0, "rubric_0": 1.0, "rubric_1": 1.0}


def test_a_trajectory_rubric_sees_one_episode_at_a_time() -> None:
    class Length(TrajectoryRubric):
        def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
            return float(len(trajectory))

        def compute_step_rewards(self) -> list[float]:
            return []

    class Short(Quiet):
        def __init__(self) -> None:
            Environment.__init__(self, rubric=Length())
            self.steps = 0

        def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:
            self.steps = 0
            return Observation()

        def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
            self.steps += 1
            return Observation(done=self.steps == 3)

    environment = Short()
    prepare(environment)
    for _ in range(2):
        environment.reset()
        assert [environment.step(Action()).reward for _ in range(3)] == [0.0, 0.0, 3.0]


def test_an_environment_with_neither_is_called_as_it_is() -> None:
    class Plain(Quiet):
        def __init__(self) -> None: ...

    environment = Plain()
    prepare(environment)
    assert not {"step", "reset", "step_async", "reset_async"} & vars(environment).keys()
    assert environment._apply_rubric(Action(), Observation()) == 0.0


def test_a_step_that_raises_leaves_no_trace_in_the_next() -> None:
    class Fragile(Quiet):
        def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
            if action.metadata:
                raise ValueError("broken")
            return Observation()

    environment = Fragile()
    prepare(environment)
    with pytest.raises(ValueError, match="broken"):
        environment.step(Action(metadata={"x": 1}))
    assert environment.step(Action()).reward == 1.0
