"""Observations and actions in words, for language models, of whatever space they are.

Where Gymnasium's documentation names what the numbers mean, they are named so here.

Source: the documentation of Gymnasium's classic control and toy text environments, version 1.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy

from openenv_trl.gymnasium.by_space import AnySpace, spaces
from openenv_trl.gymnasium.recipe import AnyEnv

_MOST_NUMBERS = 32  # of an array, to be told one by one

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_COLOURED = re.compile("\x1b\\[([0-9;]*[1-9][0-9;]*)m(.*?)\x1b\\[0?m")
_CODE = re.compile("\x1b\\[[0-9;]*m")

_PARTS: dict[str, tuple[str, ...]] = {
    "AcrobotEnv": (
        "cosine of joint 1",
        "sine of joint 1",
        "cosine of joint 2",
        "sine of joint 2",
        "angular velocity of joint 1",
        "angular velocity of joint 2",
    ),
    "BlackjackEnv": ("sum of your cards", "dealer's card", "usable ace"),
    "CartPoleEnv": ("cart position", "cart velocity", "pole angle", "pole angular velocity"),
    "Continuous_MountainCarEnv": ("position", "velocity"),
    "MountainCarEnv": ("position", "velocity"),
    "PendulumEnv": ("cosine of the angle", "sine of the angle", "angular velocity"),
}
_ACTIONS: dict[str, tuple[str, ...]] = {
    "AcrobotEnv": ("torque -1 on joint 2", "no torque", "torque +1 on joint 2"),
    "BlackjackEnv": ("stick", "hit"),
    "CartPoleEnv": ("push the cart left", "push the cart right"),
    "CliffWalkingEnv": ("up", "right", "down", "left"),
    "FrozenLakeEnv": ("left", "down", "right", "up"),
    "MountainCarEnv": ("accelerate left", "do not accelerate", "accelerate right"),
    "TaxiEnv": ("south", "north", "east", "west", "pick up the passenger", "drop off the passenger"),
}


def parts_of(env: AnyEnv) -> tuple[str, ...]:
    """Return what the parts of an environment's observations are called; nothing where that is not known."""
    return _PARTS.get(type(env.unwrapped).__name__, ())


def actions_of(env: AnyEnv) -> tuple[str, ...]:
    """Return what the numbers of an environment's actions mean; nothing where that is not known."""
    inner: Any = env.unwrapped
    if hasattr(inner, "get_action_meanings"):  # as Atari's have
        known = tuple(map(str, inner.get_action_meanings()))
    else:
        known = _ACTIONS.get(type(inner).__name__, ())
    return known if len(known) == getattr(env.action_space, "n", None) else ()


def tool_description(name: str, action_space: AnySpace, meanings: Sequence[str]) -> str:
    """Return what a model reads of the tool by which it acts."""
    text = f"Take one action in {name}."
    if meanings:
        start = int(getattr(action_space, "start", 0))
        listed = "; ".join(f"{start + index}: {meaning}" for index, meaning in enumerate(meanings))
        return f"{text} {listed}."
    return text


def observation_in_words(space: AnySpace, value: Any, parts: Sequence[str] = ()) -> str:
    """Return an observation in words.

    Args:
        space: The observation space.
        value: A value of it.
        parts: What its parts are called.

    Example:
        >>> observation_in_words(spaces.Discrete(16), 4)
        'Observation: 4.'
    """
    if parts and len(parts) == len(value):
        listed = ", ".join(f"{part} {_words(None, item)}" for part, item in zip(parts, value, strict=True))
        return f"Observation: {listed}."
    return f"Observation: {_words(space, value)}."


def outcome_in_words(reward: float, *, terminated: bool, truncated: bool) -> str:
    """Return in words what a step has brought beside its observation."""
    text = f" Reward: {reward:g}."
    if terminated:
        return f"{text} The episode is over."
    return f"{text} The episode was cut off." if truncated else text


def rendered_in_plain_text(rendered: str) -> str:
    r"""Return rendered text without the codes that colour it on a terminal: what was coloured stands in brackets.

    Where there are several colours, the bracket says which.

    Example:
        >>> rendered_in_plain_text("S\x1b[41mF\x1b[0mFF")
        'S[F]FF'
    """
    one = len({_colour(found[1]) for found in _COLOURED.finditer(rendered)}) < 2

    def marked(found: re.Match[str]) -> str:
        return f"[{found[2]}]" if one else f"[{_colour(found[1])} {found[2]}]"

    return _CODE.sub("", _COLOURED.sub(marked, rendered))


def _colour(codes: str) -> str:
    """The colour that the codes of ECMA-48 (SGR) name: 30 to 37 of the text, 40 to 47 of its ground."""
    numbers = [int(code) for code in codes.split(";") if code]
    return next((_COLOURS[number % 10] for number in numbers if 30 <= number <= 47 and number % 10 < 8), "bold")


def _words(space: AnySpace | None, value: Any) -> str:
    if isinstance(space, spaces.Graph):
        edges = 0 if value.edges is None else len(value.edges)
        return f"a graph of {len(value.nodes)} nodes and {edges} edges"
    if isinstance(value, numpy.ndarray):
        return _array_in_words(value)
    if isinstance(value, numpy.generic):
        return _words(space, value.item())
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return ", ".join(f"{key}: {_words(_inner(space, key), item)}" for key, item in items)
    if isinstance(value, (tuple, list)):
        items = enumerate(cast("list[Any]", value))
        return f"({', '.join(_words(_inner(space, index), item) for index, item in items)})"
    return str(value)


def _inner(space: AnySpace | None, key: Any) -> AnySpace | None:
    return cast("Any", space).spaces[key] if isinstance(space, (spaces.Dict, spaces.Tuple)) else None


def _array_in_words(array: Any) -> str:
    if array.size <= _MOST_NUMBERS:
        return _listed(array.tolist())
    shape = "x".join(map(str, array.shape))
    if array.dtype == numpy.uint8 and array.ndim in (2, 3):
        return f"a picture of {shape}"
    return f"an array of {shape}, from {array.min():.4g} to {array.max():.4g}"


def _listed(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_listed, cast('list[Any]', values)))}]"
    return f"{values:.4g}" if isinstance(values, float) else str(values)
