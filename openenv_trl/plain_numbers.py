"""Numbers of other libraries as Python's own: a reward may be any of them, in this process and over both wires."""

from __future__ import annotations

import math
from typing import Any


def plain_number(value: Any) -> bool | int | float | None:
    """Return a single number as Python's own; None where the value is none, such as text, a list, or an array of one.

    Taken are Python's, numpy's and other libraries' scalars, arrays and tensors without axes, fractions and decimals.
    What is beyond the range of floats, and no integer, becomes an infinity.

    Example:
        >>> plain_number(numpy.float32(0.5)), plain_number(torch.tensor(True)), plain_number("0.5")
        (0.5, True, None)
    """
    if type(value) in (bool, int, float):
        return value
    if isinstance(value, float):  # also numpy's float64
        return float(value)
    if isinstance(value, int):
        return int(value)
    try:
        if tuple(getattr(value, "shape", ())) != ():
            return None
        item: Any = value.item() if callable(getattr(value, "item", None)) else value
        if type(item) in (bool, int, float):
            return item
        # Text has a float too, and a complex number may lose its other half.
        if isinstance(item, (str, bytes, bytearray, complex)) or not hasattr(item, "__float__"):
            return None
        return float(item)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except Exception:  # boundary: a value may be of anyone's class
        return None
