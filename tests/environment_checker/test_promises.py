"""Each promise of an environment, broken alone, is found alone; a sound environment gives no finding."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import numpy
import pytest
from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from pydantic import Field, field_validator

from openenv_trl import check_environment
from openenv_trl.environment import Environment
from openenv_trl.errors import SessionStateError
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


class ShowsAnUnknownNumber(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        answer.metadata["scores"] = {"all": [1.0, float("nan")]}
        return answer


class RewardNaN(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        answer.reward = float("nan")
        return answer


class RewardText(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        return Answer.model_construct(text="", metadata={}, done=super().step(action).done, reward="much")


class RewardOfNumpy(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        answer.reward = numpy.float32(answer.reward)  # which pydantic does not look at here
        return answer


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


class OneObjectForAll(Sound):
    """Returns the same observation and the same state each time, as changed since."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = Answer()
        self.kept = State()

    def _reused(self, answer: Answer) -> Answer:
        self.answer.text, self.answer.reward, self.answer.done = answer.text, answer.reward, answer.done
        return self.answer

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Answer:
        return self._reused(super().reset(seed, episode_id))

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        return self._reused(super().step(action))

    @property
    def state(self) -> State:
        self.kept.episode_id, self.kept.step_count = self.episode_id, self.steps
        return self.kept


class OneObjectForAllWithoutASeed(OneObjectForAll):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        answer.text = f"{random.SystemRandom().random()}" if self.steps == 1 else ""
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
        (ShowsAnUnknownNumber, ["observation-nan"]),
        (RewardNaN, ["reward"]),
        (RewardText, ["reward"]),
        (RewardOfNumpy, []),
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
        (Sound, []),
        (OnlyAsync, []),
        (OneObjectForAll, []),
        (OneObjectForAllWithoutASeed, ["seed-replay"]),
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


class ShowsArrays(Sound):
    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Answer:
        answer = super().step(action)
        answer.metadata.update(board=numpy.zeros((3, 3)), raw=b"\xff", seen={1, 2})
        return answer


def test_what_the_wire_has_a_form_for_is_no_finding() -> None:
    assert check_environment(ShowsArrays) == []


def test_what_cannot_be_sent_is_found_with_its_place_before_any_server_runs() -> None:
    (finding,) = check_environment(ShowsWhatJsonCannotHold)
    assert "observation.metadata.board: an object of type" in finding.message
    assert "A server would take the step and then fail" in finding.message


def test_a_number_that_is_lost_is_found_with_its_place() -> None:
    (finding,) = check_environment(ShowsAnUnknownNumber)
    assert "observation.metadata.scores.all[1]" in finding.message
