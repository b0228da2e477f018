"""Reward functions made of others: sums, gates, and one for each environment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from openenv_trl.errors import ConfigurationError
from openenv_trl.rewards.function import RewardFunction, Scored, Value
from openenv_trl.rollout.trajectory import Trajectory


class ComposedReward(RewardFunction, ABC):
    """A reward function with parts: subclasses say what the parts' values mean together.

    Args:
        name: What TRL logs it by.
        children: The parts, by the names that their values are kept and logged under.
    """

    def __init__(self, name: str, children: Mapping[str, RewardFunction]) -> None:
        super().__init__(name, self._never_asked)
        self._children = dict(children)

    @property
    def children(self) -> Mapping[str, RewardFunction]:
        """The functions that this one is made of, by name."""
        return self._children

    async def evaluate(self, trajectory: Trajectory) -> Scored:
        """Score the trajectory by the parts, each of which is scored once."""
        values: dict[str, Value] = {}
        parts: dict[str, Value] = {}
        for name in self.chosen(trajectory):
            scored = await self._children[name].evaluate(trajectory)
            values[name] = parts[name] = scored.value
            parts.update({f"{name}/{path}": value for path, value in scored.parts.items()})
        return Scored(self._checked(self.combine(values), trajectory), parts)

    def chosen(self, trajectory: Trajectory) -> Sequence[str]:
        """The parts to score; by default all."""
        return list(self._children)

    @abstractmethod
    def combine(self, values: Mapping[str, Value]) -> Value:
        """The reward, from the parts' values."""

    def _never_asked(self, trajectory: Trajectory) -> Value:
        raise ConfigurationError(f"'{self.__name__}' is made of parts: await evaluate(trajectory) in place of score.")


class _WeightedSum(ComposedReward):
    def __init__(self, name: str, children: Mapping[str, RewardFunction], weights: Sequence[float]) -> None:
        super().__init__(name, children)
        self.weights = dict(zip(children, weights, strict=True))

    def combine(self, values: Mapping[str, Value]) -> Value:
        total = 0.0
        for name, value in values.items():
            if value is None:
                return None
            total += self.weights[name] * value
        return total


class _Gate(ComposedReward):
    def __init__(
        self, name: str, condition: RewardFunction, reward: RewardFunction, at_least: float, otherwise: float
    ) -> None:
        super().__init__(name, named([condition, reward]))
        self._condition, self._reward = self._children
        self._at_least, self._otherwise = at_least, otherwise

    def combine(self, values: Mapping[str, Value]) -> Value:
        opened = values[self._condition]
        if opened is None:
            return None
        return values[self._reward] if opened >= self._at_least else self._otherwise


class _ByEnvironment(ComposedReward):
    def chosen(self, trajectory: Trajectory) -> Sequence[str]:
        return [trajectory.environment] if trajectory.environment in self._children else []

    def combine(self, values: Mapping[str, Value]) -> Value:
        return next(iter(values.values()), None)


def compose(
    functions: Sequence[RewardFunction], weights: Sequence[float] | None = None, *, name: str | None = None
) -> RewardFunction:
    """The weighted sum of reward functions; None where any of them is None.

    TRL can weigh reward functions itself (``reward_weights``), but sums over those that are not None: an episode
    without the environment's reward would then be judged by its format alone.

    Args:
        functions: What to sum.
        weights: One for each function; all 1.0 if None.
        name: What TRL logs it by; made of the functions' names if None.

    Raises:
        ConfigurationError: There is nothing to sum, or not one weight for each function.

    Example:
        >>> reward = compose([environment_reward(unfinished=-1.0), format_reward()], [1.0, 0.5])
    """
    chosen = [1.0] * len(functions) if weights is None else list(weights)
    if not functions or len(chosen) != len(functions):
        raise ConfigurationError(
            f"compose needs one weight for each function: it got {len(functions)} functions and {len(chosen)} weights."
        )
    return _WeightedSum(name or "_".join(function.__name__ for function in functions), named(functions), chosen)


def gate(
    condition: RewardFunction,
    reward: RewardFunction,
    *,
    at_least: float = 1.0,
    otherwise: float = 0.0,
    name: str | None = None,
) -> RewardFunction:
    """A reward that counts only where a condition holds, such as a quality that only correct answers can earn.

    Args:
        condition: Opens the gate; where it is None, so is the whole.
        reward: The reward behind it.
        at_least: The value of the condition from which the gate is open.
        otherwise: The reward where it is shut.
        name: What TRL logs it by; made of the functions' names if None.

    Example:
        >>> brief_if_right = gate(environment_reward(), length_reward(max_tokens=256), at_least=1.0)
    """
    return _Gate(name or f"{reward.__name__}_if_{condition.__name__}", condition, reward, at_least, otherwise)


def by_environment(
    functions: Mapping[str, RewardFunction], *, name: str = "environment_specific_reward"
) -> RewardFunction:
    """A reward function of its own for each environment of a mixed run; None for environments that have none here.

    Args:
        functions: Reward functions by the environment's name, as ``EnvironmentRollout`` was given it.
        name: What TRL logs it by.

    Raises:
        ConfigurationError: There are none.
    """
    if not functions:
        raise ConfigurationError("by_environment needs at least one reward function.")
    return _ByEnvironment(name, functions)


def named(functions: Sequence[RewardFunction]) -> dict[str, RewardFunction]:
    """Functions by name; those whose name is taken get a number."""
    children: dict[str, RewardFunction] = {}
    for function in functions:
        name, number = function.__name__, 2
        while name in children:
            name, number = f"{function.__name__}_{number}", number + 1
        children[name] = function
    return children
