"""A field of a pydantic model that holds a value of a Gymnasium space.

The field's JSON Schema is the space's, and what is given for it is read, checked and turned into the value that the
space contains: an array of its dtype, a tuple, a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from openenv_trl.errors import ConfigurationError
from openenv_trl.gymnasium.by_space import AnySpace
from openenv_trl.gymnasium.space_bounds import require_within
from openenv_trl.gymnasium.space_schema import schema_of_space
from openenv_trl.gymnasium.space_values import SpaceValueError, read_value


class SpaceField:
    """The annotation of such a field.

    Args:
        space: The space.
        at: What errors call the value.
        bounded: Whether a value out of the space's bounds is refused. Environments do not always keep them in what
            they show.
        names: Names for the values of a Discrete, its smallest first. They are then taken beside the numbers.
        shows_names: Whether the schema lists the names in the numbers' place.

    Raises:
        ConfigurationError: The names do not fit the space.
    """

    def __init__(
        self, space: AnySpace, at: str, *, bounded: bool, names: Sequence[str] = (), shows_names: bool = True
    ) -> None:
        self._space = space
        self._at = at
        self._bounded = bounded
        self._names = tuple(names)
        self._shows_names = shows_names and bool(names)
        self._numbers = _numbers_of(space, self._names) if names else {}

    @property
    def annotation(self) -> Any:
        """The type hint of the field."""
        return Annotated[Any, self]

    def read(self, value: Any) -> Any:
        """Return the space's value for what was given.

        Raises:
            SpaceValueError: There is none.
        """
        if self._numbers and isinstance(value, str):
            value = self._number(value)
        read = read_value(self._space, value, self._at)
        if self._bounded:
            require_within(self._space, read, self._at)
        return read

    def _number(self, name: str) -> Any:
        number = self._numbers.get(name.strip().casefold())
        if number is None and not name.strip().removeprefix("-").isdecimal():
            raise SpaceValueError(f"{self._at}={name!r} is no action: give one of {', '.join(self._names)}.")
        return name if number is None else number

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        del schema, handler
        return {"type": "string", "enum": list(self._names)} if self._shows_names else schema_of_space(self._space)


def _numbers_of(space: AnySpace, names: tuple[str, ...]) -> dict[str, int]:
    count, start = getattr(space, "n", None), getattr(space, "start", None)
    if count is None or start is None:
        raise ConfigurationError(f"action_names name the numbers of a Discrete, and {space} is none. Leave them out.")
    if len(names) != int(count):
        raise ConfigurationError(f"action_names has {len(names)} names, and {space} needs {int(count)}.")
    numbers = {name.casefold(): int(start) + index for index, name in enumerate(names)}
    if len(numbers) != len(names) or any(name != name.strip() or not name for name in names):
        raise ConfigurationError(f"action_names must differ, whatever their case: {', '.join(map(repr, names))}.")
    return numbers
