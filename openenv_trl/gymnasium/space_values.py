"""Values of Gymnasium's spaces as they travel, and back.

Arrays stay arrays, which the native wire sends as their memory and JSON as lists; all else becomes what JSON has words
for. What comes back is a value that the space contains where the one that left was: of its dtype, to the last bit.

`read_value` trusts nobody: it is what a server does with a language model's action. Its errors say where in the value
the trouble is, and what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import gymnasium.vector.utils as batches
import numpy

from openenv_trl.gymnasium.by_space import AnySpace, BySpace, spaces


class SpaceValueError(ValueError):
    """A value that does not belong to a space; the text says where, and what would."""


def write_value(space: AnySpace, value: Any) -> Any:
    """Return a value of the space as it travels.

    Example:
        >>> write_value(spaces.OneOf([spaces.Discrete(2), spaces.Text(5)]), (1, "up"))
        [1, 'up']
    """
    return _WRITERS(space)(space, value)


def read_value(space: AnySpace, value: Any, at: str = "value") -> Any:
    """Return what travelled, as a value of the space.

    Args:
        space: The space.
        value: What travelled, or was written by hand: numbers may come as their digits, arrays as lists.
        at: What to call the value in errors.

    Raises:
        SpaceValueError: It has not the form of the space's values.
    """
    return _READERS(space)(space, value, at)


def _write_integer(space: Any, value: Any) -> Any:
    return int(value)


def _write_array(space: Any, value: Any) -> Any:
    return numpy.asarray(value, space.dtype)


def _write_text(space: Any, value: Any) -> Any:
    return str(value)


def _write_dict(space: Any, value: Any) -> Any:
    return {key: write_value(inner, value[key]) for key, inner in space.spaces.items()}


def _write_tuple(space: Any, value: Any) -> Any:
    return [write_value(inner, item) for inner, item in zip(space.spaces, value, strict=True)]


def _write_sequence(space: Any, value: Any) -> Any:
    items = batches.iterate(space.stacked_feature_space, value) if space.stack else value
    return [write_value(space.feature_space, item) for item in items]


def _write_graph(space: Any, value: Any) -> Any:
    nodes = numpy.asarray(value.nodes, space.node_space.dtype)
    edges = None if value.edges is None or space.edge_space is None else value.edges
    return {
        "nodes": nodes,
        "edges": None if edges is None else numpy.asarray(edges, cast("AnySpace", space.edge_space).dtype),
        "edge_links": None if value.edge_links is None else numpy.asarray(value.edge_links),
    }


def _write_one_of(space: Any, value: Any) -> Any:
    index, item = value
    return [int(index), write_value(space.spaces[int(index)], item)]


def _read_discrete(space: Any, value: Any, at: str) -> Any:
    return _integer(value, at)


def _read_array(space: Any, value: Any, at: str) -> Any:
    shape, dtype = space.shape, numpy.dtype(space.dtype)
    array = _array(value, dtype, at)
    if array.ndim == 0 and shape and math.prod(shape) == 1:
        return array.reshape(shape)  # a number, where an array of one is meant
    if array.shape != shape:
        raise SpaceValueError(f"{at} has the shape {array.shape}, and {space} has {shape}.")
    return array


def _array(value: Any, dtype: Any, at: str) -> Any:
    try:
        given = numpy.asarray(value)
        if given.dtype == object:
            given = numpy.asarray(value, numpy.float64)  # with integers beyond 64 bits, or None, which is NaN here
    except (TypeError, ValueError, OverflowError):
        given = None
    if given is None or given.dtype.kind not in "biuf":
        raise SpaceValueError(f"{at}={shortened(value)} is no array of numbers of one shape ({dtype.name}).")
    if isinstance(value, list) and given.dtype.kind == "f" and numpy.isnan(given).any():
        raise SpaceValueError(
            f"{at} holds a number that is not finite, for which JSON has no word. Use the native wire for such values."
        )
    if not given.size:
        return numpy.array(given, dtype)
    with numpy.errstate(all="ignore"):
        array = numpy.array(given, dtype)  # a copy: what came over the wire cannot be written to
        if dtype.kind in "biu" and given.dtype != dtype and not (array == given).all():
            raise SpaceValueError(f"{at}={shortened(value)} holds a number that is no {dtype.name}.")
    return array


def _read_text(space: Any, value: Any, at: str) -> Any:
    if not isinstance(value, str):
        raise SpaceValueError(f"{at}={shortened(value)} is no text.")
    return value


def _read_dict(space: Any, value: Any, at: str) -> Any:
    if not isinstance(value, Mapping):
        raise SpaceValueError(f"{at}={shortened(value)} is no object with the keys {', '.join(space.spaces)}.")
    given = cast("Mapping[str, Any]", value)
    if given.keys() != space.spaces.keys():
        raise SpaceValueError(f"{at} has the keys {sorted(given)}, and needs {sorted(space.spaces)}.")
    return {key: read_value(inner, given[key], f"{at}.{key}") for key, inner in space.spaces.items()}


def _read_tuple(space: Any, value: Any, at: str) -> Any:
    items = _items(value, at)
    if len(items) != len(space.spaces):
        raise SpaceValueError(f"{at} has {len(items)} items, and needs {len(space.spaces)}.")
    pairs = enumerate(zip(space.spaces, items, strict=True))
    return tuple(read_value(inner, item, f"{at}[{index}]") for index, (inner, item) in pairs)


def _read_sequence(space: Any, value: Any, at: str) -> Any:
    inner = space.feature_space
    if space.stack and isinstance(value, Mapping):  # as the space samples it, and as it does not travel
        value = list(batches.iterate(space.stacked_feature_space, cast("Any", value)))
    read = tuple(read_value(inner, item, f"{at}[{index}]") for index, item in enumerate(_items(value, at)))
    if not space.stack:
        return read
    stacked = batches.create_empty_array(inner, len(read))
    return batches.concatenate(inner, read, stacked) if read else stacked


def _read_graph(space: Any, value: Any, at: str) -> Any:
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        parts = [given.get(name) for name in ("nodes", "edges", "edge_links")]
    else:
        parts = _items(value, at)
    if len(parts) != 3 or parts[0] is None:
        raise SpaceValueError(f"{at}={shortened(value)} is no graph: give nodes, edges and edge_links.")
    nodes = _array(parts[0], numpy.dtype(space.node_space.dtype), f"{at}.nodes")
    edges = links = None
    if parts[1] is not None and space.edge_space is not None:
        edges = _array(parts[1], numpy.dtype(space.edge_space.dtype), f"{at}.edges")
    if parts[2] is not None:
        links = _array(parts[2], numpy.dtype(numpy.int32), f"{at}.edge_links")
        if not links.size:
            links = links.reshape(0, 2)
        outside = links.size and not (links.min() >= 0 and links.max() < len(nodes))
        if links.ndim != 2 or links.shape[1] != 2 or outside:
            raise SpaceValueError(f"{at}.edge_links must be pairs of node numbers from 0 to {len(nodes) - 1}.")
    return spaces.GraphInstance(nodes, edges, links)


def _read_one_of(space: Any, value: Any, at: str) -> Any:
    items = _items(value, at)
    if len(items) != 2:
        raise SpaceValueError(f"{at}={shortened(value)} is no pair of an option's number and its value.")
    index = _integer(items[0], f"{at}[0]")
    if not 0 <= index < len(space.spaces):
        raise SpaceValueError(f"{at}[0]={index} is no option: give an integer from 0 to {len(space.spaces) - 1}.")
    return index, read_value(space.spaces[index], items[1], f"{at}[1]")


def _integer(value: Any, at: str) -> int:
    given: Any = cast("Any", value).tolist() if isinstance(value, (numpy.ndarray, numpy.generic)) else value
    if isinstance(given, str) and given.strip().removeprefix("-").isdecimal():
        return int(given)
    if isinstance(given, float) and given.is_integer():
        return int(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    raise SpaceValueError(f"{at}={shortened(value)} is no integer.")


def _items(value: Any, at: str) -> list[Any]:
    if isinstance(value, (list, tuple)) or (isinstance(value, numpy.ndarray) and value.ndim):
        return list(cast("list[Any]", value))
    raise SpaceValueError(f"{at}={shortened(value)} is no list.")


def shortened(value: Any) -> str:
    """Return the value as errors show it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_WRITERS = BySpace(
    {
        spaces.Discrete: _write_integer,
        spaces.MultiDiscrete: _write_array,
        spaces.MultiBinary: _write_array,
        spaces.Box: _write_array,
        spaces.Text: _write_text,
        spaces.Dict: _write_dict,
        spaces.Tuple: _write_tuple,
        spaces.Sequence: _write_sequence,
        spaces.Graph: _write_graph,
        spaces.OneOf: _write_one_of,
    }
)
_READERS = BySpace(
    {
        spaces.Discrete: _read_discrete,
        spaces.MultiDiscrete: _read_array,
        spaces.MultiBinary: _read_array,
        spaces.Box: _read_array,
        spaces.Text: _read_text,
        spaces.Dict: _read_dict,
        spaces.Tuple: _read_tuple,
        spaces.Sequence: _read_sequence,
        spaces.Graph: _read_graph,
        spaces.OneOf: _read_one_of,
    }
)
