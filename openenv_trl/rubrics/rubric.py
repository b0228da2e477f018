"""Rubrics: what makes a step good, as named parts that can be composed, asked for their scores, and reset.

A rubric is called with an action and its observation and returns a score. Where its own `forward`, or that of any part
of it, is a coroutine function, the call returns an awaitable instead. A rubric that is assigned to an attribute of
another one becomes its part, under the attribute's name.

Source: section "Rubrics" of the OpenEnv package, version 0.10.0, for names and behaviour.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

Score = Any
"""A float; or an awaitable of one, where something in the rubric is asynchronous."""
Course = Generator[Any, Any, float]
"""One call, as a generator that yields whatever may have to be awaited and is sent the outcome."""


class Rubric(ABC):
    """One way to score a step. Subclasses define `forward`.

    Attributes:
        last_score: What the last call gave; None before the first.
    """

    last_score: float | None = None

    def __init__(self) -> None:
        self._parts()

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Rubric):
            self._parts()[name] = value
        else:
            self._parts().pop(name, None)
        super().__setattr__(name, value)

    @abstractmethod
    def forward(self, action: Any, observation: Any) -> Score:
        """Return the score of the action, most often between 0 and 1. It may be a coroutine function."""

    def __call__(self, action: Any, observation: Any) -> Score:
        """Score a step, and remember the score as ``last_score``."""
        return follow(self._course(action, observation))

    def register_forward_pre_hook(self, hook: Callable[[Rubric, Any, Any], Any]) -> None:
        """Call ``hook(rubric, action, observation)`` before each scoring; it may be a coroutine function."""
        _listed(self, "_pre_hooks").append(hook)

    def register_forward_hook(self, hook: Callable[[Rubric, Any, Any, float], Any]) -> None:
        """Call ``hook(rubric, action, observation, score)`` after each scoring; it may be a coroutine function."""
        _listed(self, "_hooks").append(hook)

    def children(self) -> Iterator[Rubric]:
        """The parts of this rubric."""
        yield from self._parts().values()

    def named_children(self) -> Iterator[tuple[str, Rubric]]:
        """The parts of this rubric, with their names."""
        yield from self._parts().items()

    def rubrics(self) -> Iterator[Rubric]:
        """The parts, and the parts of each."""
        for _, rubric in self.named_rubrics():
            yield rubric

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, Rubric]]:
        """The parts, and the parts of each, under dotted names: ``("answer.format", rubric)``."""
        for name, rubric in self.named_children():
            dotted = f"{prefix}.{name}" if prefix else name
            yield dotted, rubric
            yield from rubric.named_rubrics(dotted)

    def get_rubric(self, path: str) -> Rubric:
        """Return the part of that dotted name.

        Raises:
            KeyError: There is none; the text lists those there are.
        """
        for name, rubric in self.named_rubrics():
            if name == path:
                return rubric
        names = ", ".join(name for name, _ in self.named_rubrics()) or "none"
        raise KeyError(f"no rubric at '{path}'; there are: {names}")

    def reset(self) -> None:
        """Forget what belongs to the episode, in all parts."""
        for rubric in self.children():
            rubric.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return this rubric's own settings, without those of its parts."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take settings from `state_dict`: none, where a subclass does not say which."""
        del state

    def _parts(self) -> dict[str, Rubric]:
        # In place of __init__, which a subclass may forget to call.
        parts: dict[str, Rubric] = vars(self).setdefault("_rubric_parts", {})
        return parts

    def _course(self, action: Any, observation: Any) -> Course:
        for hook in _listed(self, "_pre_hooks"):
            yield hook(self, action, observation)
        score = yield self.forward(action, observation)
        self.last_score = score
        for hook in _listed(self, "_hooks"):
            yield hook(self, action, observation, score)
        return score


def _listed(rubric: Rubric, name: str) -> list[Callable[..., Any]]:
    hooks: list[Callable[..., Any]] = vars(rubric).setdefault(name, [])
    return hooks


class RubricList(Rubric):
    """Rubrics by number, for a parent that says what their scores mean together."""

    def __init__(self, rubrics: Iterable[Rubric] = ()) -> None:
        super().__init__()
        self.extend(rubrics)

    def forward(self, action: Any, observation: Any) -> Score:
        """Not for this class: it has no rule for many scores.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(f"{type(self).__name__} has no score of its own: a parent rubric combines its parts.")

    def append(self, rubric: Rubric) -> None:
        """Add a rubric at the end."""
        self._parts()[f"rubric_{len(self)}"] = rubric

    def extend(self, rubrics: Iterable[Rubric]) -> None:
        """Add rubrics at the end."""
        for rubric in rubrics:
            self.append(rubric)

    def __len__(self) -> int:
        return len(self._parts())

    def __getitem__(self, index: int) -> Rubric:
        return list(self._parts().values())[index]

    def __iter__(self) -> Iterator[Rubric]:
        return iter(list(self._parts().values()))


class RubricDict(Rubric):
    """Rubrics by name, for a parent that says what their scores mean together."""

    def __init__(self, rubrics: Mapping[str, Rubric] | None = None) -> None:
        super().__init__()
        self.update(rubrics or {})

    def forward(self, action: Any, observation: Any) -> Score:
        """Not for this class: it has no rule for many scores.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(f"{type(self).__name__} has no score of its own: a parent rubric combines its parts.")

    def update(self, rubrics: Mapping[str, Rubric]) -> None:
        """Add rubrics, or replace those of the same names."""
        self._parts().update(rubrics)

    def __setitem__(self, key: str, rubric: Rubric) -> None:
        self._parts()[key] = rubric

    def __getitem__(self, key: str) -> Rubric:
        return self._parts()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._parts()

    def __len__(self) -> int:
        return len(self._parts())

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._parts()))

    def keys(self) -> Iterator[str]:
        """The names."""
        return iter(self)

    def values(self) -> Iterator[Rubric]:
        """The rubrics."""
        return iter(list(self._parts().values()))

    def items(self) -> Iterator[tuple[str, Rubric]]:
        """Names and rubrics."""
        return iter(list(self._parts().items()))


class Sequential(RubricList):
    """Rubrics one after another, each a condition for the next: the score is the last one's, or 0 at the first 0."""

    def __init__(self, *rubrics: Rubric) -> None:
        super().__init__(rubrics)

    def forward(self, action: Any, observation: Any) -> Score:
        """Return the last rubric's score, 0 where one before it gave 0, and 1 where there is no rubric."""
        return follow(self._in_order(action, observation))

    def _in_order(self, action: Any, observation: Any) -> Course:
        score = 1.0
        for rubric in self:
            score = yield rubric(action, observation)
            if score == 0:
                return 0.0
        return score


class Gate(Rubric):
    """A rubric that must reach a threshold: its score from there on, 0 below."""

    def __init__(self, rubric: Rubric, threshold: float = 1.0) -> None:
        super().__init__()
        self.rubric = rubric
        self.threshold = threshold

    def forward(self, action: Any, observation: Any) -> Score:
        """Return the rubric's score, or 0 where it is below the threshold."""
        return follow(self._gated(action, observation))

    def _gated(self, action: Any, observation: Any) -> Course:
        score = yield self.rubric(action, observation)
        return score if score >= self.threshold else 0.0


class WeightedSum(RubricList):
    """The weighted mean of rubrics. Asynchronous ones are awaited together.

    Args:
        rubrics: The parts.
        weights: One for each; they sum to 1.

    Raises:
        ValueError: The numbers differ, or the weights do not sum to 1.
    """

    def __init__(self, rubrics: Iterable[Rubric], weights: Iterable[float]) -> None:
        super().__init__(rubrics)
        self._weights = list(weights)
        if len(self._weights) != len(self):
            raise ValueError(f"{len(self)} rubrics and {len(self._weights)} weights: give one weight for each rubric")
        if abs(sum(self._weights) - 1.0) > 1e-6:
            raise ValueError(f"the weights must sum to 1: they sum to {sum(self._weights)}")

    @property
    def weights(self) -> list[float]:
        """The weights, in the order of the rubrics."""
        return list(self._weights)

    def forward(self, action: Any, observation: Any) -> Score:
        """Return the sum of each score times its weight."""
        return follow(self._summed(action, observation))

    def _summed(self, action: Any, observation: Any) -> Course:
        scores: list[Any] = [rubric(action, observation) for rubric in self]
        if any(inspect.isawaitable(score) for score in scores):
            scores = yield _together(scores)
        return float(sum(score * weight for score, weight in zip(scores, self._weights, strict=True)))


def follow(course: Course) -> Score:
    """Go through a course: returns its score, or an awaitable of it from the first thing on that must be awaited."""
    outcome: Any = None
    try:
        while True:
            outcome = course.send(outcome)
            if inspect.isawaitable(outcome):
                return _follow_on(course, outcome)
    except StopIteration as end:
        return end.value


async def _follow_on(course: Course, pending: Awaitable[Any]) -> float:
    outcome: Any = pending
    try:
        while True:
            outcome = course.send(await outcome if inspect.isawaitable(outcome) else outcome)
    except StopIteration as end:
        return end.value


async def _together(scores: list[Any]) -> list[float]:
    import anyio  # not for those who have only synchronous rubrics

    async def wait_for(index: int) -> None:
        if inspect.isawaitable(scores[index]):
            scores[index] = await scores[index]

    async with anyio.create_task_group() as tasks:
        for index in range(len(scores)):
            tasks.start_soon(wait_for, index)
    return scores
