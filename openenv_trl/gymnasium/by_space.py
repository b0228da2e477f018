"""Which function is for which kind of space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import gymnasium
import gymnasium.spaces

from openenv_trl.errors import ConfigurationError

AnySpace = gymnasium.Space[Any]

spaces: Any = gymnasium.spaces
"""Gymnasium's module. Its classes are generic in part, and a type checker cannot follow what they hold."""

Function = TypeVar("Function", bound=Callable[..., Any])


class BySpace(Generic[Function]):
    """A function for each class of spaces; a class without one takes that of its nearest ancestor.

    Args:
        functions: The functions, by class.
    """

    def __init__(self, functions: Mapping[Any, Function]) -> None:
        self._functions = dict(functions)

    def __call__(self, space: AnySpace) -> Function:
        """Return the function for a space.

        Raises:
            ConfigurationError: There is none.
        """
        kind = type(space)
        found = self._functions.get(kind)
        if found is None:
            found = self._functions[kind] = self._inherited(space, kind)
        return found

    def _inherited(self, space: AnySpace, kind: type[Any]) -> Function:
        for ancestor in kind.__mro__:
            if ancestor in self._functions:
                return self._functions[ancestor]
        raise ConfigurationError(
            f"{space!r} is a {kind.__name__}, which is no space of Gymnasium's own: others cannot know what it means. "
            "Wrap the environment (gymnasium.ObservationWrapper, ActionWrapper) so that it has a space of "
            "gymnasium.spaces."
        )
