"""What an agent does in a Gymnasium environment, what it sees, and what the trainer sees.

`GymnasiumAction` and `GymnasiumObservation` are the bases; each environment has classes of its own, with its spaces'
JSON Schemas (`action_class`, `observation_class`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field

from openenv_trl.gymnasium.by_space import AnySpace
from openenv_trl.gymnasium.space_field import SpaceField
from openenv_trl.gymnasium.space_json import json_of_space
from openenv_trl.types import Action, Observation, State

ModelT = TypeVar("ModelT", bound=BaseModel)

SCHEMA_KEY = "x-gymnasium"
"""Where the action's JSON Schema (``/schema``) tells of the environment what JSON Schema has no words for."""


class GymnasiumAction(Action):
    """One action."""

    action: Any
    """A value of the environment's action space: a number, a list, an object."""

    environment_cls: ClassVar[Any] = None
    """The environment's class, by which instances travel between processes."""

    def __reduce__(self) -> Any:
        if self.environment_cls is None:
            return super().__reduce__()
        return _rebuilt, (self.environment_cls, "action_cls", self.__getstate__())


class GymnasiumObservation(Observation):
    """What a reset or a step brought.

    ``metadata`` says how an episode has ended: ``terminated`` and ``truncated``, as Gymnasium tells them apart.
    """

    observation: Any
    """A value of the environment's observation space. Arrays travel as arrays on the native wire, as lists in JSON."""
    message: str = ""
    """The observation in words: what a language model reads."""
    info: dict[str, Any] = Field(default_factory=dict)
    """What the environment told beside the observation."""

    environment_cls: ClassVar[Any] = None
    """As `GymnasiumAction.environment_cls`."""

    def __reduce__(self) -> Any:
        if self.environment_cls is None:
            return super().__reduce__()
        return _rebuilt, (self.environment_cls, "observation_cls", self.__getstate__())


class GymnasiumState(State):
    """Which environment is played, and what it takes to play the episode again."""

    env_id: str = ""
    """Gymnasium's name of the environment, or that of what makes it."""
    seed: int | None = None
    """The last seed that the environment was reset with: the caller's, or one that was drawn for its first episode."""
    episodes_since_seed: int = 0
    """Episodes begun since, 0 for the seed's own. Like Gymnasium's, a reset without a seed goes on with the random
    numbers of the episode before it."""
    frame: Any = None
    """What the environment renders: an array of pixels (``render_mode="rgb_array"``) or text (``"ansi"``)."""


def action_class(
    name: str, action_space: AnySpace, observation_space: AnySpace, facts: Mapping[str, Any], names: Sequence[str] = ()
) -> type[GymnasiumAction]:
    """Return the action class of an environment.

    Args:
        name: What the class is called.
        action_space: What the environment takes.
        observation_space: What it shows.
        facts: What else the schema tells beside the spaces.
        names: Names of actions, taken beside their numbers.

    Raises:
        ConfigurationError: A space has no JSON form, or the names do not fit.
    """
    spaces = {"action_space": json_of_space(action_space), "observation_space": json_of_space(observation_space)}
    # Of numbers: programs read it. The tool's schema, which a model reads, has the names.
    field = SpaceField(action_space, "action", bounded=True, names=names, shows_names=False)
    config = ConfigDict(json_schema_extra={SCHEMA_KEY: {**facts, **spaces}})
    return _with_field(name, GymnasiumAction, "action", field, config)


def observation_class(name: str, space: AnySpace) -> type[GymnasiumObservation]:
    """Return the observation class of an environment that shows values of a space."""
    return _with_field(name, GymnasiumObservation, "observation", SpaceField(space, "observation", bounded=False))


def _with_field(
    name: str, base: type[ModelT], field_name: str, field: SpaceField, config: ConfigDict | None = None
) -> type[ModelT]:
    content = {
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        "__annotations__": {field_name: field.annotation},
        "model_config": config or ConfigDict(),
    }
    return cast("type[ModelT]", type(base)(name, (base,), content))


def _rebuilt(environment_cls: Any, attribute: str, state: dict[str, Any]) -> Any:
    """A model from another process, of the class that is here in its class's place."""
    cls = getattr(environment_cls, attribute)
    model = cls.__new__(cls)
    model.__setstate__(state)
    return model
