"""What `check_environment` takes, what it refuses, and how its report is read."""

from __future__ import annotations

import io
import random
import threading
from functools import partial
from typing import Any

import pytest
from blackjack_env.models import BlackjackAction, BlackjackObservation
from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from pydantic import Field, field_validator
from rich.console import Console

from openenv_trl import check_environment
from openenv_trl.environment import Environment
from openenv_trl.errors import ConfigurationError
from openenv_trl.types import Action, Observation, State


class NeedsArguments(BlackjackEnvironment):
    def __init__(self, level: int) -> None:
        super().__init__()


class StepRaises(BlackjackEnvironment):
    async def step_async(self, action: BlackjackAction, timeout_s: float | None = None, **kwargs: Any) -> Any:
        raise ZeroDivisionError("of nothing")

    step = step_async  # pyright: ignore[reportAssignmentType]


class RewardNaN(BlackjackEnvironment):
    def _payoff(self) -> float:
        return float("nan")


class SeedIgnored(BlackjackEnvironment):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> BlackjackObservation:
        return super().reset(seed=1, episode_id=episode_id)


class OneNameForReset(BlackjackEnvironment):
    async def reset_async(self, episode_id: str | None = None) -> BlackjackObservation:  # pyright: ignore
        return self.reset(seed=1, episode_id=episode_id)


class Picky(Action):
    word: str
    uses: list[int] = Field(default_factory=list)

    @field_validator("word")
    @classmethod
    def _only_one(cls, word: str) -> str:
        if word != "abracadabra":
            raise ValueError("not the word")
        return word


class WantsAWord(Environment[Picky, Observation, State]):
    """Each step uses its action up."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        self.kept = State(episode_id=episode_id)
        self.seed = seed
        return Observation()

    def step(self, action: Picky, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        self.kept.step_count += 1
        action.uses.append(1)
        return Observation(reward=float(len(action.uses) + (self.seed or 0)))

    @property
    def state(self) -> State:
        return self.kept


def test_an_instance_is_checked_by_copies_and_left_as_it_is() -> None:
    environment = BlackjackEnvironment(natural=True)
    environment.reset(seed=1, episode_id="mine")
    assert check_environment(environment) == []
    assert environment.state.episode_id == "mine"


def test_an_instance_that_cannot_be_copied_is_checked_alone() -> None:
    environment = BlackjackEnvironment()
    environment.lock = threading.Lock()  # pyright: ignore[reportAttributeAccessIssue]
    assert check_environment(environment).codes == ["single-instance"]


def test_a_function_that_builds_the_environment_is_taken() -> None:
    assert check_environment(lambda: BlackjackEnvironment(sab=True)) == []
    assert check_environment(partial(NeedsArguments, level=3)) == []


@pytest.mark.parametrize("actions", [[{"word": "abracadabra"}], [Picky(word="abracadabra")]], ids=["dicts", "typed"])
def test_sample_actions_take_the_place_of_drawn_ones(actions: list[Any]) -> None:
    assert check_environment(WantsAWord, sample_actions=actions) == []


def test_a_function_makes_actions_from_the_last_observation() -> None:
    seen: list[str] = []

    def choose(observation: Observation, generator: random.Random) -> dict[str, Any]:
        seen.append(observation.model_dump()["message"])
        return {"move": generator.choice(["hit", "stand"])}

    assert check_environment(BlackjackEnvironment, sample_actions=choose, reset_arguments={"task_seed": 4}) == []
    openings = [message for message in seen if message.count(",") == 2]
    assert openings
    assert len(set(openings)) == 1


def test_a_step_that_raises_on_the_callers_own_action_is_an_error_and_on_a_drawn_one_a_warning() -> None:
    assert [finding.level for finding in check_environment(StepRaises)] == ["warning"]
    given = check_environment(StepRaises, sample_actions=[{"move": "hit"}])
    assert [finding.level for finding in given] == ["error"]
    assert "step_async({'move': 'hit'}) raised ZeroDivisionError('of nothing')" in given[0].message


def test_the_callers_actions_are_copied_for_each_use() -> None:
    action = Picky(word="abracadabra")
    assert check_environment(WantsAWord, sample_actions=[action]) == []
    assert action.uses == []


def test_one_seed_alone_tells_nothing_of_whether_seeds_matter() -> None:
    assert check_environment(SeedIgnored, seeds=(3,)) == []


def test_examples_of_a_field_make_an_action_that_can_be_drawn() -> None:
    class Helped(Picky):
        word: str = Field(examples=["abracadabra"])

    assert check_environment(WantsAWord, action_cls=Helped) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"seeds": ()}, "at least one seed"),
        ({"steps": 0}, "one step"),
        ({"sample_actions": []}, "name at least one action"),
        ({"sample_actions": [{"move": 1}]}, r"\{'move': 1\}, which is no BlackjackAction"),
    ],
)
def test_arguments_that_cannot_work_are_refused_at_once(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        check_environment(BlackjackEnvironment, **arguments)


def test_reset_arguments_that_reset_does_not_take_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="no parameter 'level'"):
        check_environment(OneNameForReset, reset_arguments={"level": 3})


@pytest.mark.parametrize("thing", [3, dict], ids=["a number", "a class of something else"])
def test_what_is_no_environment_is_refused(thing: Any) -> None:
    with pytest.raises(ConfigurationError, match="takes an Environment, its class, or a function"):
        check_environment(thing)


@pytest.mark.anyio
async def test_it_runs_inside_a_running_event_loop_as_in_a_notebook() -> None:
    assert check_environment(BlackjackEnvironment) == []


def test_a_report_prints_and_raises() -> None:
    report = check_environment(RewardNaN)
    assert str(report).splitlines()[0] == "RewardNaN: 1 error"
    assert str(report).splitlines()[1].endswith("[reward]")
    assert not report.ok
    with pytest.raises(ConfigurationError, match="RewardNaN: 1 error"):
        report.raise_for_errors()
    console = Console(file=io.StringIO(), width=200)
    console.print(report)
    assert "what to change" in console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    nothing = check_environment(BlackjackEnvironment)
    assert str(nothing) == "BlackjackEnvironment: no findings."
    assert nothing.ok
    nothing.raise_for_errors()
    notes = check_environment(SeedIgnored)
    assert notes.ok
    notes.raise_for_errors()
