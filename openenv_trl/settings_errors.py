"""What is wrong with settings, in one sentence: pydantic's errors with the names that were meant, on every level."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError


def problems(error: ValidationError, kind: Any = None, place: str = "") -> str:
    """All that pydantic found wrong, each with its place and field.

    Args:
        error: What it raised.
        kind: What was read, a model or a type made of models, to guess which field an unknown one was meant to be.
        place: What the whole is called, where it has no fields of its own to be called by.

    Example:
        >>> problems(error, PoolSettings)
        "it has no field 'max_replica' (is 'max_replicas' meant?)"
        >>> problems(error, list[RewardSettings], "rewards")
        "rewards.0 has no field 'unfinishd' (is 'unfinished' meant?)"
    """
    return "; ".join(_problem(each, kind, place) for each in error.errors())


def with_guess(name: str, known: Iterable[str]) -> str:
    """An unknown name in quotes, and the known one that it may have been meant to be.

    Example:
        >>> with_guess("learnin_rate", ["learning_rate", "seed"])
        "'learnin_rate' (is 'learning_rate' meant?)"
    """
    near = difflib.get_close_matches(name, known, n=1)
    return f"'{name}'" + (f" (is '{near[0]}' meant?)" if near else "")


@dataclass(frozen=True)
class _Spot:
    """Where an error's path leads: the type there, and the path without the tags that only pydantic has in it."""

    kind: Any
    path: tuple[str, ...]


def _problem(error: Any, kind: Any, place: str) -> str:
    location: tuple[Any, ...] = error["loc"]
    if error["type"] == "extra_forbidden":
        owner, fields = _owner(kind, location[:-1])
        return f"{_joined(place, owner) or 'it'} has no field {with_guess(str(location[-1]), fields)}"
    spot = next(_spots(kind, location), None)
    where = _joined(place, tuple(map(str, location)) if spot is None else spot.path)
    if error["type"] == "union_tag_not_found":
        return _without_tag(error, where, spot)
    if error["type"] == "union_tag_invalid":
        context = error["ctx"]
        tags = [each.strip("'") for each in str(context["expected_tags"]).split(", ")]
        text = (
            f"there is no {_unquoted(context)} {with_guess(str(context['tag']), tags)}; it is one of {', '.join(tags)}"
        )
    else:
        text = str(error["msg"]).removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def _without_tag(error: Any, where: str, spot: _Spot | None) -> str:
    """A mapping that does not say which of several kinds it is: its key is missing, or written wrongly."""
    tag = _unquoted(error["ctx"])
    given = [str(each) for each in cast("dict[Any, Any]", error["input"])] if isinstance(error["input"], dict) else []
    wrong = difflib.get_close_matches(tag, given, n=1)
    if wrong:
        return f"{where or 'it'} has no field '{wrong[0]}' (is '{tag}' meant?)"
    tags = [each for member in (_members(spot.kind) if spot else ()) for each in _tags(member, tag)]
    text = f"give its {tag}" + (f", one of {', '.join(tags)}" if tags else "")
    return f"{where}: {text}" if where else text


def _unquoted(context: Any) -> str:
    return str(context["discriminator"]).strip("'")


def _joined(place: str, path: Sequence[str]) -> str:
    return ".".join([place, *path] if place else path)


def _owner(kind: Any, location: tuple[Any, ...]) -> tuple[tuple[str, ...], list[str]]:
    """The path of what holds an unknown field, and the fields that it has."""
    for spot in _spots(kind, location):
        if _is_model(spot.kind):
            return spot.path, list(spot.kind.model_fields)
    return tuple(map(str, location)), []


def _spots(kind: Any, location: tuple[Any, ...], path: tuple[str, ...] = ()) -> Iterator[_Spot]:
    """Every type that a path of pydantic's may lead to: of several members of a union the path names one, or none."""
    if get_origin(kind) is Annotated:
        yield from _spots(get_args(kind)[0], location, path)
        return
    if not location:
        yield _Spot(kind, path)
    members = _members(kind)
    if members:
        yield from _spots_of_union(members, location, path)
        return
    if not location:
        return
    step, rest = location[0], location[1:]
    further = (*path, str(step))
    arguments = get_args(kind)
    if _is_model(kind):
        if step in kind.model_fields:
            yield from _spots(kind.model_fields[step].annotation, rest, further)
    elif len(arguments) == 2 and isinstance(step, str):  # a mapping
        yield from _spots(arguments[1], rest, further)
    elif arguments and isinstance(step, int):  # a list, or a tuple
        yield from _spots(arguments[0], rest, further)


def _spots_of_union(members: Sequence[Any], location: tuple[Any, ...], path: tuple[str, ...]) -> Iterator[_Spot]:
    if location:
        # A tag, or a member's name, is in pydantic's path and in no file.
        for each in members:
            if location[0] in (*_tags(each), getattr(each, "__name__", None)):
                yield from _spots(each, location[1:], path)
    for each in members:
        yield from _spots(each, location, path)


def _members(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else ()


def _tags(kind: Any, name: str | None = None) -> list[str]:
    """What tells a member of a union from the others: the words that its field of that name, or any one, must be."""
    if not _is_model(kind):
        return []
    fields = cast("type[BaseModel]", kind).model_fields
    kinds = [field.annotation for each, field in fields.items() if name in (None, each)]
    return [str(tag) for each in kinds if get_origin(each) is Literal for tag in get_args(each)]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
