"""Each promise of an environment, broken alone, is found alone; a sound environment gives no finding."""

from __future__ import annotations

import io
import random
import threading
from functools import partial
from typing import Any, ClassVar, Literal

import pytest
from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator
from rich.console import Console

from openenv_trl import check_environment
from openenv_trl.environment import Environment, tool
from openenv_trl.environment_checker.sampling import sample
from openenv_trl.errors import ConfigurationError, SessionStateError
from openenv_trl.types import Action, EnvironmentMetadata, Observation, State


class Guess(Action):
    number: int = Field(ge=0, le=9)


class Answer(Observation):
    text: str = ""


class Sound(Environment[Guess, Answer, State]):
    """A number from 0 to 9 is drawn; five guesses. Every promise is kept."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self.generator = random.Random()
        self.steps = 0
        self.episode_id: str | None = None

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        self.generator = random.Random(seed)
        self.steps = 0
        self.episode_id = episode_id
        return Answer(text=f"a number near {self.generator.randrange(10**6)}")

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        self.steps += 1
        drawn = self.generator.randrange(10**6)
        return Answer(text=f"{drawn} is not {action.number}", reward=drawn / 10**6, done=self.steps >= 5)

    @property
    def state(self) -> State:
        return State(episode_id=self.episode_id, step_count=self.steps)


class NeedsArguments(Sound):
    def __init__(self, level: int) -> None:
        super().__init__()


class SeedDroppedFromTheSignature(Sound):
    def reset(self, episode_id: str | None = None) -> Answer:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().reset(seed=1, episode_id=episode_id)


class EpisodeIdDroppedFromTheSignature(Sound):
    def reset(self, seed: int | None = None) -> Answer:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().reset(seed=seed, episode_id="mine")


class ResetRaises(Sound):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        raise OSError("the data set is missing")


class StepRaises(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        if self.steps == 3:
            raise ZeroDivisionError("of nothing")
        return answer


class ShowsAnotherClass(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Any:
        return Observation(**super().step(action).model_dump(exclude={"text"}))


class ReturnsADict(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Any:
        return super().step(action).model_dump()


class Opaque:
    pass


class ShowsWhatJsonCannotHold(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        answer.metadata["board"] = Opaque()
        return answer


class RewardNaN(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        answer.reward = float("nan")
        return answer


class RewardText(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        return Answer.model_construct(text="", metadata={}, done=super().step(action).done, reward="much")


class DoneIsANumber(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        return Answer.model_construct(text="", metadata={}, done=int(super().step(action).done), reward=0.0)


class DoneAtReset(Sound):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        answer = super().reset(seed, episode_id)
        answer.done = True
        return answer


class StateIsADict(Sound):
    @property
    def state(self) -> Any:
        return {"episode_id": self.episode_id, "step_count": self.steps}


class StateRaises(Sound):
    @property
    def state(self) -> State:
        raise KeyError("step_count")


class StateHoldsWhatJsonCannot(Sound):
    @property
    def state(self) -> State:
        return State.model_validate({**super().state.model_dump(), "board": Opaque()})


class EpisodeIdReplaced(Sound):
    @property
    def state(self) -> State:
        return State(episode_id="mine", step_count=self.steps)


class StepsNotCounted(Sound):
    @property
    def state(self) -> State:
        return State(episode_id=self.episode_id)


class StepsCountedThroughResets(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        self.total += 1
        return super().step(action)

    @property
    def state(self) -> State:
        return State(episode_id=self.episode_id, step_count=self.total)


class GlobalRandomness(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        answer.text = f"{random.SystemRandom().random()}"
        return answer


class SeedIgnored(Sound):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        return super().reset(7, episode_id)


class ResetLeavesTheScore(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.score = 0

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        self.score += 1
        answer = super().step(action)
        answer.text += f" (score {self.score})"
        return answer


class HooksDiffer(Sound):
    async def step_async(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = self.step(action)
        answer.text = answer.text.upper()
        return answer


class GeneratorInTheClass(Sound):
    shared: ClassVar[random.Random] = random.Random()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        answer = super().reset(seed, episode_id)
        self.shared.seed(seed)
        self.generator = self.shared
        return answer


class GeneratorInTheClassAndOneSession(GeneratorInTheClass):
    SUPPORTS_CONCURRENT_SESSIONS = False


class ConcurrencyUndeclared(Sound):
    SUPPORTS_CONCURRENT_SESSIONS = False


class CloseTakesTheOthersAlong(Sound):
    tables: ClassVar[dict[int, str]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.tables[id(self)] = "green"

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        answer.text += f" at the {self.tables.get(id(self), 'missing')} table"
        return answer

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        self.tables[id(self)] = self.tables.get(id(self), "brown")
        return super().reset(seed, episode_id)

    def close(self) -> None:
        self.tables.clear()


class TheNewestTakesTheTable(Sound):
    owner: ClassVar[Any] = None

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        type(self).owner = self
        return super().reset(seed, episode_id)

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        answer.text += "" if self.owner is self else " from the gallery"
        return answer


class OnlyAsync(Sound):
    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        return Sound.reset(self, seed, episode_id)

    async def step_async(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        return Sound.step(self, action)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        raise NotImplementedError

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        raise NotImplementedError


class UsesUpItsActions(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        answer.text += f" {action.metadata.setdefault('uses', []).append(1) or len(action.metadata['uses'])}"
        return answer


class CloseRaises(Sound):
    def close(self) -> None:
        raise OSError("busy")


class CloseIsAsync(Sound):
    async def close(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        pass


class CloseOnlyOnce(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.handle: list[int] | None = []

    def close(self) -> None:
        if self.handle is None:
            raise ValueError("already closed")
        self.handle = None


class BreaksAfterClose(Sound):
    def close(self) -> None:
        self.generator = None  # pyright: ignore[reportAttributeAccessIssue]
        self.closed = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        if hasattr(self, "closed"):
            self.generator.random()
        return super().reset(seed, episode_id)


class RefusesAfterClose(Sound):
    closed = False

    def close(self) -> None:
        self.closed = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        if self.closed:
            raise SessionStateError("This environment is closed.")
        return super().reset(seed, episode_id)


class MetadataRaises(Sound):
    def get_metadata(self) -> EnvironmentMetadata:
        raise RuntimeError("not yet reset")


class MetadataNameless(Sound):
    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name=" ", description="")


class Unschemed(Observation):
    board: Opaque | None = None


class ObservationWithoutSchema(Environment[Guess, Unschemed, State]):
    reset = Sound.reset  # pyright: ignore[reportAssignmentType]
    step = Sound.step  # pyright: ignore[reportAssignmentType]
    state = Sound.state


class Picky(Action):
    word: str

    @field_validator("word")
    @classmethod
    def _only_one(cls, word: str) -> str:
        if word != "abracadabra":
            raise ValueError("not the word")
        return word


class HardToSample(Environment[Picky, Answer, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    __init__ = Sound.__init__  # pyright: ignore[reportAssignmentType]
    reset = Sound.reset
    state = Sound.state

    def step(self, action: Picky, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        return Sound.step(self, Guess(number=len(action.word) % 10))  # pyright: ignore[reportArgumentType]


class UntypedActions(Environment[Action, Answer, State]):
    __init__ = Sound.__init__  # pyright: ignore[reportAssignmentType]
    reset = Sound.reset
    state = Sound.state

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        raise AssertionError


class WithTools(Environment[Action, Answer, State]):
    """Acts by tools alone."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    __init__ = Sound.__init__  # pyright: ignore[reportAssignmentType]
    reset = Sound.reset
    state = Sound.state

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        raise NotImplementedError

    @tool
    def guess(self, number: int) -> Answer:
        """Guess the number."""
        return Sound.step(self, Guess(number=number % 10))  # pyright: ignore[reportArgumentType]


class WithAsyncTool(WithTools):
    @tool
    async def ponder(self, words: list[str]) -> Answer:
        """Think for a while."""
        return Sound.step(self, Guess(number=len(words) % 10))  # pyright: ignore[reportArgumentType]


class ToolReturnsText(Sound):
    @tool
    def hint(self) -> str:
        """Ask for a hint."""
        return "it is even"


class ToolRaises(Sound):
    @tool
    def hint(self, about: str) -> Answer:
        """Ask for a hint."""
        raise KeyError(about)


class ToolUndescribed(Sound):
    @tool
    def hint(self) -> Answer:
        return self.step(Guess(number=1))


class ToolWithoutHints(Sound):
    @tool
    def hint(self, about) -> Answer:  # pyright: ignore
        """Ask for a hint."""
        return self.step(Guess(number=1))


@pytest.mark.parametrize(
    ("environment", "codes"),
    [
        (NeedsArguments, ["construction"]),
        (SeedDroppedFromTheSignature, ["reset-seed"]),
        (EpisodeIdDroppedFromTheSignature, ["reset-episode-id"]),
        (ResetRaises, ["reset-raised"]),
        (StepRaises, ["step-raised"]),
        (ShowsAnotherClass, ["observation-type"]),
        (ReturnsADict, ["observation-type"]),
        (ShowsWhatJsonCannotHold, ["observation-json"]),
        (RewardNaN, ["reward"]),
        (RewardText, ["reward"]),
        (DoneIsANumber, ["done"]),
        (DoneAtReset, ["reset-done"]),
        (StateIsADict, ["state-type"]),
        (StateRaises, ["state-type"]),
        (StateHoldsWhatJsonCannot, ["state-json"]),
        (EpisodeIdReplaced, ["state-episode-id"]),
        (StepsNotCounted, ["state-step-count"]),
        (StepsCountedThroughResets, ["state-step-count"]),
        (GlobalRandomness, ["seed-replay"]),
        (SeedIgnored, ["seed-ignored"]),
        (ResetLeavesTheScore, ["reset-clears"]),
        (HooksDiffer, ["hooks-agree"]),
        (GeneratorInTheClass, ["concurrent-sessions"]),
        (CloseTakesTheOthersAlong, ["concurrent-sessions"]),
        (TheNewestTakesTheTable, ["concurrent-sessions"]),
        (GeneratorInTheClassAndOneSession, ["instances-share-state"]),
        (ConcurrencyUndeclared, ["concurrency-undeclared"]),
        (CloseRaises, ["close"]),
        (CloseIsAsync, ["close"]),
        (CloseOnlyOnce, ["close-twice"]),
        (BreaksAfterClose, ["use-after-close"]),
        (RefusesAfterClose, []),
        (MetadataRaises, ["metadata"]),
        (MetadataNameless, ["metadata"]),
        (ObservationWithoutSchema, ["schema"]),
        (HardToSample, ["action-sampling"]),
        (UntypedActions, ["action-sampling"]),
        (ToolReturnsText, ["tool-result"]),
        (ToolRaises, ["tool-raised"]),
        (ToolUndescribed, ["tool-description"]),
        (ToolWithoutHints, ["tool-schema"]),
        (Sound, []),
        (OnlyAsync, []),
        (WithTools, []),
        (WithAsyncTool, []),
        (BlackjackEnvironment, []),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_promise_is_found_and_nothing_else(
    environment: type[Environment[Any, Any, Any]], codes: list[str]
) -> None:
    report = check_environment(environment)
    assert report.codes == codes, str(report)
    assert all(len(finding.message) > 40 and finding.message.endswith(".") for finding in report)


def test_an_instance_is_checked_by_copies_and_left_as_it_is() -> None:
    environment = BlackjackEnvironment(natural=True)
    environment.reset(seed=1, episode_id="mine")
    assert check_environment(environment) == []
    assert environment.state.episode_id == "mine"


def test_an_instance_that_cannot_be_copied_is_checked_alone() -> None:
    environment = Sound()
    environment.lock = threading.Lock()  # pyright: ignore[reportAttributeAccessIssue]
    assert check_environment(environment).codes == ["single-instance"]


def test_a_function_that_builds_the_environment_is_taken() -> None:
    assert check_environment(lambda: BlackjackEnvironment(sab=True)) == []
    assert check_environment(partial(NeedsArguments, level=3)) == []


@pytest.mark.parametrize("actions", [[{"word": "abracadabra"}], [Picky(word="abracadabra")]], ids=["dicts", "typed"])
def test_sample_actions_take_the_place_of_drawn_ones(actions: list[Any]) -> None:
    assert check_environment(HardToSample, sample_actions=actions) == []


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
    given = check_environment(StepRaises, sample_actions=[{"number": 1}])
    assert [finding.level for finding in given] == ["error"]
    assert "step({'number': 1}) raised ZeroDivisionError('of nothing')" in given[0].message


def test_the_callers_actions_are_copied_for_each_use() -> None:
    action = Guess(number=1, metadata={"uses": []})
    assert check_environment(UsesUpItsActions, sample_actions=[action]) == []
    assert action.metadata == {"uses": []}


def test_one_seed_alone_tells_nothing_of_whether_seeds_matter() -> None:
    assert check_environment(SeedIgnored, seeds=(3,)) == []


def test_examples_of_a_field_make_an_action_that_can_be_drawn() -> None:
    class Helped(Picky):
        word: str = Field(examples=["abracadabra"])

    assert check_environment(HardToSample, action_cls=Helped) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"seeds": ()}, "at least one seed"),
        ({"steps": 0}, "one step"),
        ({"sample_actions": []}, "name at least one action"),
        ({"sample_actions": [{"number": 10}]}, r"\{'number': 10\}, which is no Guess"),
    ],
)
def test_arguments_that_cannot_work_are_refused_at_once(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        check_environment(Sound, **arguments)


def test_reset_arguments_that_reset_does_not_take_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="no parameter 'level'"):
        check_environment(SeedDroppedFromTheSignature, reset_arguments={"level": 3})


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
    nothing = check_environment(Sound)
    assert str(nothing) == "Sound: no findings."
    assert nothing.ok
    nothing.raise_for_errors()
    notes = check_environment(SeedIgnored)
    assert notes.ok
    notes.raise_for_errors()


class Inner(BaseModel):
    flag: bool
    ratio: float = Field(gt=0, lt=1)
    children: list[Inner] = Field(default_factory=list, max_length=2)


class Everything(BaseModel):
    kind: Literal["one", "two"]
    fixed: Literal[7]
    small: int = Field(ge=-3, le=3)
    stepped: int = Field(gt=10, lt=40, multiple_of=5)
    low: int = Field(ge=1000)
    high: float = Field(le=-1000)
    text: str = Field(min_length=12, max_length=14)
    maybe: int | None
    pair: tuple[int, str]
    several: set[bool] = Field(min_length=1)
    numbers: list[int] = Field(min_length=2, max_length=3)
    nested: Inner
    union: Inner | list[str] | bool
    loose: dict[str, int]
    anything: Any
    optional: str = "absent"


@given(st.integers())
def test_drawn_values_fit_their_schema(seed: int) -> None:
    value = sample(Everything.model_json_schema(), random.Random(seed))
    Everything.model_validate(value)
    assert value == sample(Everything.model_json_schema(), random.Random(seed))


def test_drawn_values_reach_all_of_a_small_range() -> None:
    generator = random.Random(0)
    assert {sample({"type": "integer", "minimum": 1, "maximum": 3}, generator) for _ in range(60)} == {1, 2, 3}
    assert {sample({"enum": ["a", "b"]}, generator) for _ in range(60)} == {"a", "b"}
    both = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2, "uniqueItems": True}
    assert all(sorted(sample(both, generator)) == [False, True] for _ in range(20))
    assert {sample({"type": "boolean"}, generator) for _ in range(60)} == {True, False}
