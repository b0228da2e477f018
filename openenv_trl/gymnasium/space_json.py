"""Gymnasium's spaces as JSON, and back: equal spaces, to the bounds' last bit and the dtype.

Every space of ``gymnasium.spaces`` has a form here: an object with ``type`` and the arguments of its constructor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy

from openenv_trl.errors import ConfigurationError
from openenv_trl.gymnasium.by_space import AnySpace, BySpace, spaces

_INFINITIES = {"inf": math.inf, "-inf": -math.inf}


def json_of_space(space: AnySpace) -> dict[str, Any]:
    """Return a space as JSON.

    Args:
        space: Any space of Gymnasium's own, nested as it may be.

    Raises:
        ConfigurationError: It is of another class, of which nobody else would know what it means.

    Example:
        >>> json_of_space(spaces.Discrete(2))
        {'type': 'Discrete', 'n': 2, 'start': 0, 'dtype': 'int64'}
    """
    return _DESCRIBERS(space)(space)


def space_of_json(described: Mapping[str, Any]) -> AnySpace:
    """Return the space that JSON of `json_of_space` describes.

    Raises:
        ConfigurationError: It describes none.
    """
    kind = described.get("type")
    build = _BUILDERS.get(kind) if isinstance(kind, str) else None
    if build is None:
        raise ConfigurationError(f"{dict(described)!r} describes no space: its 'type' must be one of {_names()}.")
    try:
        return build(described)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, AssertionError) as error:
        raise ConfigurationError(f"{dict(described)!r} describes no {kind}: {error}.") from error


def _names() -> str:
    return ", ".join(sorted(_BUILDERS))


def _discrete(space: Any) -> dict[str, Any]:
    return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": _dtype_name(space)}


def _multi_discrete(space: Any) -> dict[str, Any]:
    nvec, start = space.nvec.tolist(), space.start.tolist()
    return {"type": "MultiDiscrete", "nvec": nvec, "start": start, "dtype": _dtype_name(space)}


def _multi_binary(space: Any) -> dict[str, Any]:
    return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}


def _box(space: Any) -> dict[str, Any]:
    low, high = _bound(space.low), _bound(space.high)
    return {"type": "Box", "low": low, "high": high, "shape": list(space.shape), "dtype": _dtype_name(space)}


def _text(space: Any) -> dict[str, Any]:
    lengths = {"min_length": int(space.min_length), "max_length": int(space.max_length)}
    return {"type": "Text", **lengths, "charset": "".join(space.character_list)}


def _dict(space: Any) -> dict[str, Any]:
    wrong = [key for key in space.spaces if not isinstance(cast("object", key), str)]
    if wrong:
        raise ConfigurationError(f"{space!r} has the key {wrong[0]!r}, which is no text, as every key must be in JSON.")
    return {"type": "Dict", "spaces": {key: json_of_space(inner) for key, inner in space.spaces.items()}}


def _tuple(space: Any) -> dict[str, Any]:
    return {"type": "Tuple", "spaces": [json_of_space(inner) for inner in space.spaces]}


def _sequence(space: Any) -> dict[str, Any]:
    return {"type": "Sequence", "space": json_of_space(space.feature_space), "stack": bool(space.stack)}


def _graph(space: Any) -> dict[str, Any]:
    edge_space = None if space.edge_space is None else json_of_space(space.edge_space)
    return {"type": "Graph", "node_space": json_of_space(space.node_space), "edge_space": edge_space}


def _one_of(space: Any) -> dict[str, Any]:
    return {"type": "OneOf", "spaces": [json_of_space(inner) for inner in space.spaces]}


def _dtype_name(space: Any) -> str:
    return str(numpy.dtype(space.dtype))


def _bound(bound: Any) -> Any:
    """One number where all are equal, else nested lists; infinities as text, for which JSON has no number."""
    if bound.size and (bound == bound.flat[0]).all():
        return _number(bound.flat[0].item())
    return _nested(bound.tolist())


def _nested(values: Any) -> Any:
    return [_nested(value) for value in cast("list[Any]", values)] if isinstance(values, list) else _number(values)


def _number(value: Any) -> Any:
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _read_bound(bound: Any) -> Any:
    if isinstance(bound, list):
        return [_read_bound(value) for value in cast("list[Any]", bound)]
    return _INFINITIES[bound] if isinstance(bound, str) else bound


def _build_box(described: Mapping[str, Any]) -> AnySpace:
    shape, dtype = tuple(described["shape"]), numpy.dtype(described["dtype"])
    # As arrays of the space's own dtype: numbers would go through float64, which has not all integers of 64 bits.
    # Integers have no infinities, and a space whose bounds were given as such has their largest numbers.
    low, high = (numpy.full(shape, _read_bound(described[name]), dtype) for name in ("low", "high"))
    return spaces.Box(low, high, shape, cast("Any", dtype.type))


def _build_discrete(described: Mapping[str, Any]) -> AnySpace:
    space = spaces.Discrete(described["n"], start=described.get("start", 0), **_dtype_argument(described))
    return cast("AnySpace", space)


def _dtype_argument(described: Mapping[str, Any]) -> dict[str, Any]:
    # Before Gymnasium 1.2 a Discrete took no dtype, and was of int64.
    name = described.get("dtype", "int64")
    return {} if name == "int64" else {"dtype": numpy.dtype(name).type}


def _build_multi_discrete(described: Mapping[str, Any]) -> AnySpace:
    dtype: Any = numpy.dtype(described.get("dtype", "int64")).type
    return spaces.MultiDiscrete(described["nvec"], dtype=dtype, start=described.get("start"))


def _build_text(described: Mapping[str, Any]) -> AnySpace:
    min_length, max_length = described.get("min_length", 1), described["max_length"]
    return spaces.Text(max_length, min_length=min_length, charset=described["charset"])


def _build_graph(described: Mapping[str, Any]) -> AnySpace:
    edges = described.get("edge_space")
    return spaces.Graph(space_of_json(described["node_space"]), None if edges is None else space_of_json(edges))


_BUILDERS: dict[str, Callable[[Mapping[str, Any]], AnySpace]] = {
    "Discrete": _build_discrete,
    "MultiDiscrete": _build_multi_discrete,
    "MultiBinary": lambda described: spaces.MultiBinary(described["n"]),
    "Box": _build_box,
    "Text": _build_text,
    "Dict": lambda described: spaces.Dict({key: space_of_json(each) for key, each in described["spaces"].items()}),
    "Tuple": lambda described: spaces.Tuple([space_of_json(each) for each in described["spaces"]]),
    "Sequence": lambda described: spaces.Sequence(space_of_json(described["space"]), stack=described["stack"]),
    "Graph": _build_graph,
    "OneOf": lambda described: spaces.OneOf([space_of_json(each) for each in described["spaces"]]),
}


_DESCRIBERS = BySpace(
    {
        spaces.Discrete: _discrete,
        spaces.MultiDiscrete: _multi_discrete,
        spaces.MultiBinary: _multi_binary,
        spaces.Box: _box,
        spaces.Text: _text,
        spaces.Dict: _dict,
        spaces.Tuple: _tuple,
        spaces.Sequence: _sequence,
        spaces.Graph: _graph,
        spaces.OneOf: _one_of,
    }
)
