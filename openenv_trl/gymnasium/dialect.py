"""How Gymnasium's words are said to a server: actions, seeds and options there, observations and outcomes back.

A server of `GymnasiumEnvironment` tells its spaces in its schema, and every value is exactly what it is there. Of any
other server the spaces are derived from its JSON Schemas, or given by the user. Promise: no reward, no end and no
observation is ever made up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from openenv_trl.errors import ConfigurationError, ProtocolError
from openenv_trl.gymnasium.by_space import AnySpace
from openenv_trl.gymnasium.chosen_action import chosen_action
from openenv_trl.gymnasium.info_values import owned
from openenv_trl.gymnasium.models import SCHEMA_KEY
from openenv_trl.gymnasium.schema_spaces import NoSpaceError, SchemaSpace, dict_space, space_of_schema
from openenv_trl.gymnasium.space_json import space_of_json
from openenv_trl.gymnasium.space_values import SpaceValueError, read_value, shortened, write_value
from openenv_trl.types import StepResult
from openenv_trl.wire.observations import lost_reward

Result = StepResult[dict[str, Any]]
Outcome = tuple[Any, float, bool, bool, dict[str, Any]]
"""What Gymnasium's ``step`` returns: observation, reward, terminated, truncated, info."""

_NOT_SHOWN = ("done", "reward", "metadata")
_SEEDS = 2**31  # every server's environment takes one of these


@dataclass(frozen=True)
class Wishes:
    """What the user says of a server, in place of what its schemas would say.

    Attributes:
        action_space: What steps take.
        observation_space: What they show.
        to_action: From a value of the action space to the action's fields.
        to_observation: From the observation's fields to a value of the observation space.
        fields: The observation's fields to show; all if None.
        missing_reward: The reward of a step for which the server gives none; an error if None.
    """

    action_space: AnySpace | None = None
    observation_space: AnySpace | None = None
    to_action: Callable[[Any], Mapping[str, Any]] | None = None
    to_observation: Callable[[dict[str, Any]], Any] | None = None
    fields: Sequence[str] | None = None
    missing_reward: float | None = None


class Dialect:
    """What is said to one server, and how its answers are understood.

    Args:
        schema: What the server answers at ``/schema``.
        wishes: What the user says of it.

    Raises:
        ConfigurationError: A space can neither be had from the schema nor from the user; the text says what to pass.

    Attributes:
        action_space: What steps take.
        observation_space: What they show.
        facts: What the server tells of itself: ``env_id``, ``render_mode`` and more. Empty where it knows nothing of
            Gymnasium.
    """

    def __init__(self, schema: Mapping[str, Any], wishes: Wishes) -> None:
        self._missing_reward = wishes.missing_reward
        action = cast("Mapping[str, Any]", schema["action"])
        self.facts = cast("Mapping[str, Any]", action.get(SCHEMA_KEY, {}))
        self._action_fields = sorted(set(cast("Mapping[str, Any]", action.get("properties", {}))) - {"metadata"})
        acts = _gymnasium_action if self.facts else _derived_action
        shows = _gymnasium_observation if self.facts else _derived_observation
        self.action_space, self._write = acts(action, self.facts, wishes)
        self.observation_space, self._read = shows(schema["observation"], self.facts, wishes)

    def reset_arguments(self, seed: int | None, options: Mapping[str, Any] | None, generator: Any) -> dict[str, Any]:
        """Return the arguments of ``reset`` on the server.

        A server of Gymnasium's goes on with its own random numbers where no seed is given, as the environment would
        here. Any other is given a seed out of this side's.

        Args:
            seed: The seed, if any.
            options: Gymnasium's options; the reset's own arguments on a server that knows nothing of Gymnasium.
            generator: Where seeds are drawn from; a numpy generator.
        """
        if self.facts:
            given = {"seed": seed, "options": None if options is None else dict(options)}
            return {name: value for name, value in given.items() if value is not None}
        return {"seed": int(generator.integers(_SEEDS)) if seed is None else int(seed), **(options or {})}

    def action(self, value: Any) -> dict[str, Any]:
        """Return the fields of the action that a value of the action space means.

        Raises:
            ActionValidationError: The action space does not contain it.
        """
        return self._write(value)

    def difference(self, other: Dialect) -> str | None:
        """Return in words how another server's environment differs from this one's; None where both can be one vector.

        Args:
            other: What is said to the other server.
        """
        for what, own, others in (
            ("action space is", self.action_space, other.action_space),
            ("observation space is", self.observation_space, other.observation_space),
            ("fields of an action are", self._action_fields, other._action_fields),
        ):
            if own != others:
                return f"its {what} {shortened(others)}, and here {shortened(own)}"
        return None

    def beginning(self, result: Result) -> tuple[Any, dict[str, Any]]:
        """Return what Gymnasium's ``reset`` returns.

        Raises:
            ProtocolError: The observation is not what the server's schema says.
        """
        if result.done:
            raise ProtocolError("The server's reset gave an episode that is over: no step can follow.", phase="reset")
        return self._observed(result, "reset"), self._info(result)

    def outcome(self, result: Result) -> Outcome:
        """Return what Gymnasium's ``step`` returns.

        Raises:
            ProtocolError: The observation is not what the server's schema says, or there is no reward.
        """
        metadata = result.metadata or {}
        truncated = bool(metadata.get("truncated", False))
        terminated = bool(metadata.get("terminated", result.done and not truncated))
        reward = self._reward(result, metadata)
        return self._observed(result, "step"), reward, terminated, truncated and result.done, self._info(result)

    def _observed(self, result: Result, phase: str) -> Any:
        try:
            return self._read(result.observation)
        except SpaceValueError as error:
            raise ProtocolError(f"The server's observation is not of its schema: {error}", phase=phase) from error

    def _reward(self, result: Result, metadata: Mapping[str, Any]) -> float:
        if result.reward is not None:
            return float(result.reward)
        lost = lost_reward(metadata)
        if lost is not None:
            return float(lost)
        if self._missing_reward is None:
            raise ProtocolError(
                "The server gave no reward for this step, and none is made up. Pass missing_reward=0.0 if that is what "
                "it means.",
                phase="step",
            )
        return self._missing_reward

    def _info(self, result: Result) -> dict[str, Any]:
        if self.facts:
            return owned(result.observation.get("info") or {})
        return owned(result.metadata or {})


Writing = tuple[AnySpace, Callable[[Any], dict[str, Any]]]
Reading = tuple[AnySpace, Callable[[dict[str, Any]], Any]]


def _gymnasium_action(schema: Mapping[str, Any], facts: Mapping[str, Any], wishes: Wishes) -> Writing:
    served = space_of_json(facts["action_space"])
    space = wishes.action_space or served
    return space, _own_writing(wishes) or (lambda value: {"action": write_value(served, chosen_action(served, value))})


def _gymnasium_observation(schema: Mapping[str, Any], facts: Mapping[str, Any], wishes: Wishes) -> Reading:
    del schema
    served = space_of_json(facts["observation_space"])
    own = wishes.to_observation

    def read(fields: dict[str, Any]) -> Any:
        return read_value(served, fields.get("observation"), "observation")

    if own is None:
        return wishes.observation_space or served, read
    return wishes.observation_space or served, lambda fields: own({**fields, "observation": read(fields)})


def _derived_action(schema: Mapping[str, Any], facts: Mapping[str, Any], wishes: Wishes) -> Writing:
    del facts
    own = _own_writing(wishes)
    if wishes.action_space is not None and own is not None:
        return wishes.action_space, own
    properties = {key: each for key, each in schema.get("properties", {}).items() if key != "metadata"}
    names = [key for key in schema.get("required", ()) if key in properties] or list(properties)
    if wishes.action_space is not None:
        space, single = wishes.action_space, len(names) == 1
        if not single and not isinstance(getattr(space, "spaces", None), dict):
            raise ConfigurationError(
                f"The server's action has the fields {', '.join(names) or 'none'}, and {space} does not say which is "
                "which: pass to_action=, a function from a value of action_space to the action's fields."
            )
        if single:
            return space, lambda value: {names[0]: write_value(space, chosen_action(space, value))}
        return space, lambda value: dict(write_value(space, chosen_action(space, value)))
    try:
        fields = _fields(schema, names, "action", acts=True)
    except NoSpaceError as error:
        raise ConfigurationError(
            f"No action space can be derived from the server's schema: {error}. Pass action_space= and, unless the "
            "action has one field, to_action=, a function from a value of it to the action's fields."
        ) from error
    if own is not None:
        return fields.space, own
    derived, single = fields.space, len(names) == 1

    def write(value: Any) -> dict[str, Any]:
        written = fields.write(chosen_action(derived, value))
        return {names[0]: written} if single else written

    return derived, write


def _derived_observation(schema: Mapping[str, Any], facts: Mapping[str, Any], wishes: Wishes) -> Reading:
    del facts
    if wishes.to_observation is not None:
        if wishes.observation_space is None:
            raise ConfigurationError("to_observation= needs observation_space=, the space of what it returns.")
        return wishes.observation_space, wishes.to_observation
    properties = [key for key in schema.get("properties", {}) if key not in _NOT_SHOWN]
    names = properties if wishes.fields is None else list(wishes.fields)
    unknown = sorted(set(names) - set(properties))
    if unknown:
        raise ConfigurationError(
            f"The server's observation has no field {', '.join(map(repr, unknown))}. It has {', '.join(properties)}."
        )
    space = wishes.observation_space
    if space is not None:
        single = len(names) == 1
        return space, lambda fields: read_value(space, fields.get(names[0]) if single else fields, "observation")
    try:
        fields = _fields(schema, names, "observation", acts=False)
    except NoSpaceError as error:
        raise ConfigurationError(
            f"No observation space can be derived from the server's schema: {error}. Pass fields=, those to show (it "
            f"has {', '.join(properties) or 'none'}), or observation_space= and to_observation=, a function from the "
            "observation's fields to a value of it."
        ) from error
    if len(names) == 1:
        return fields.space, lambda shown: fields.read(shown.get(names[0]))
    return fields.space, fields.read


def _own_writing(wishes: Wishes) -> Callable[[Any], dict[str, Any]] | None:
    own = wishes.to_action
    return None if own is None else lambda value: dict(own(value))


def _fields(schema: Mapping[str, Any], names: Sequence[str], at: str, *, acts: bool) -> SchemaSpace:
    """The space of some of an object's fields: of the field alone, where it is one."""
    definitions = {"$defs": schema.get("$defs", {})}
    parts = {
        name: space_of_schema({**schema["properties"][name], **definitions}, f"{at}.{name}", acts=acts)
        for name in names
    }
    if not parts:
        raise NoSpaceError(f"{at} has no fields")
    return next(iter(parts.values())) if len(parts) == 1 else dict_space(parts, at)
