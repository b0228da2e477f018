"""An action, checked before it is sent: what does not lie in the action space is refused here, and no session moves."""

from __future__ import annotations

from typing import Any, cast

import numpy

from openenv_trl.errors import ActionValidationError
from openenv_trl.gymnasium.by_space import AnySpace, spaces
from openenv_trl.gymnasium.space_bounds import require_within
from openenv_trl.gymnasium.space_values import SpaceValueError, read_value, shortened, write_value

_PLAIN = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box, spaces.Text)
"""Spaces whose values are read as they are given, so that no fraction is cut off."""


def chosen_action(space: AnySpace, value: Any) -> Any:
    """Return an action as a value of its space, of the space's own dtype.

    Args:
        space: The action space.
        value: What was given for it; lists for arrays and truth values for 0 and 1 do too.

    Raises:
        ActionValidationError: The space does not contain it; the text says what would be right.
    """
    given: Any = value
    if isinstance(space, spaces.Discrete) and isinstance(value, (bool, numpy.bool_)):
        given = int(cast("Any", value))
    try:
        travels = given if isinstance(space, _PLAIN) else write_value(space, given)
        read = read_value(space, travels, "action")
        require_within(space, read, "action")
    except SpaceValueError as error:
        where = "" if str(space) in str(error) else f" The action space is {space}."
        raise ActionValidationError(f"{error}{where}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ActionValidationError(f"action={shortened(value)} is no value of {space}.") from error
    return read
