"""What a pydantic model says, with every value left as it is that needs no other form in JSON.

Models are dumped in pydantic's "python" mode: arrays stay arrays, and bytes stay bytes for a wire that has bytes. What
a model asks for in JSON alone (``ser_json_bytes="base64"``, serializers with ``when_used="json"``, secrets) is found
out once for each class, and only the fields concerned are written by pydantic's "json" mode.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast
from weakref import WeakKeyDictionary

import pydantic_core
from pydantic import BaseModel

_SETTINGS: dict[str, tuple[str, frozenset[str]]] = {
    "ser_json_bytes": ("utf8", frozenset({"bytes", "any"})),
    "ser_json_inf_nan": ("null", frozenset({"float", "any"})),
    "ser_json_timedelta": ("iso8601", frozenset({"timedelta", "any"})),
    "ser_json_temporal": ("iso8601", frozenset({"timedelta", "datetime", "date", "time", "any"})),
}
"""The settings of a model's config that only JSON sees: pydantic's default, and the schema types it bears on."""

_json_fields: WeakKeyDictionary[type[BaseModel], frozenset[str] | None] = WeakKeyDictionary()
_EVERY = frozenset({"*"})


def dump_model(model: BaseModel, *, exclude: set[str] | None = None, at: str = "") -> dict[str, Any]:
    """Return the model's fields as a dict.

    Args:
        model: The model.
        exclude: Fields to leave out.
        at: The model's own name in errors.

    Raises:
        TypeError: A serializer of the model's raised, or the model holds itself; the text names the field.
    """
    cls = type(model)
    try:
        json_fields = _json_fields[cls]
    except KeyError:
        json_fields = _json_fields[cls] = _fields_with_json_forms(cls)
    try:
        if json_fields is None:
            return model.__pydantic_serializer__.to_python(model, exclude=exclude)
        dumped = model.model_dump(exclude=exclude) if exclude else model.model_dump()
        if json_fields:
            dumped.update(_in_json_mode(model, json_fields, exclude or set()))
        return dumped
    except Exception as error:  # boundary: serializers are the author's code
        raise TypeError(_with_field(model, exclude or set(), at, error)) from error


def _fields_with_json_forms(cls: type[BaseModel]) -> frozenset[str] | None:
    """The fields that JSON mode writes in another way; None where there are none, and ``model_dump`` is pydantic's."""
    own_dump = cls.model_dump is not BaseModel.model_dump
    schema: Any = cls.__pydantic_core_schema__
    found = frozenset[str]() if own_dump else _found_in(schema)
    return found if found or own_dump else None


def _found_in(schema: Any) -> frozenset[str]:
    for model_schema in _nodes(schema, set()):
        if model_schema.get("type") != "model":
            continue
        if _is_json_form(model_schema.get("serialization")):
            return _EVERY
        fields: Any = model_schema.get("schema", {})
        while "fields" not in fields and "schema" in fields:
            fields = fields["schema"]
        types = _types_concerned(model_schema.get("config", {}))
        names: dict[str, Any] = dict(fields.get("fields", {}))
        names.update({each["property_name"]: each for each in fields.get("computed_fields", [])})
        return frozenset(name for name, field in names.items() if _concerned(field, types))
    return frozenset()


def _concerned(schema: Any, types: frozenset[str]) -> bool:
    for node in _nodes(schema, set()):
        if node.get("type") in types or _is_json_form(node.get("serialization")):
            return True
        if node.get("type") == "definition-ref":
            return True  # of a model that holds itself: rather too many than too few
        if node.get("type") in ("model", "dataclass", "typed-dict") and _types_concerned(node.get("config", {})):
            return True
    return False


def _types_concerned(config: dict[str, Any]) -> frozenset[str]:
    asked = (types for name, (default, types) in _SETTINGS.items() if config.get(name, default) != default)
    return frozenset[str]().union(*asked)


def _is_json_form(serialization: Any) -> bool:
    if not isinstance(serialization, dict):
        return False
    asked = cast("dict[str, Any]", serialization)
    # A function that is told the mode may go by it, as pydantic's own for paths and secrets do.
    return str(asked.get("when_used", "")).startswith("json") or bool(asked.get("info_arg"))


def _nodes(schema: Any, seen: set[int]) -> Iterator[dict[str, Any]]:
    """Every dict in a core schema, the outer ones first."""
    if id(schema) in seen:
        return
    seen.add(id(schema))
    if isinstance(schema, dict):
        node = cast("dict[str, Any]", schema)
        yield node
        for name, inner in node.items():
            if name != "metadata":
                yield from _nodes(inner, seen)
    elif isinstance(schema, (list, tuple)):
        for inner in cast("list[Any]", schema):
            yield from _nodes(inner, seen)


def _in_json_mode(model: BaseModel, fields: Collection[str], exclude: set[str]) -> dict[str, Any]:
    from openenv_trl.wire.json_values import json_list

    wanted = None if fields is _EVERY else set(fields) - exclude
    serializer = model.__pydantic_serializer__
    try:
        return pydantic_core.from_json(serializer.to_json(model, include=wanted, exclude=exclude, fallback=json_list))
    except ValueError as error:
        if "Error calling function" in str(error):
            raise  # what a field's own serializer refuses is never sent in another way
        if wanted is None or len(wanted) == 1:
            return {}  # pydantic has no JSON of it, as of bytes that are no text: the values stand as they are
    return {key: value for name in wanted for key, value in _in_json_mode(model, {name}, exclude).items()}


def _with_field(model: BaseModel, exclude: set[str], at: str, error: Exception) -> str:
    cls = type(model)
    names = [*cls.model_fields, *cls.model_computed_fields, *(model.__pydantic_extra__ or {})]
    for name in names:
        try:
            if name not in exclude:
                model.__pydantic_serializer__.to_python(model, include={name})
                _in_json_mode(model, {name}, exclude)
        except Exception as own:  # boundary: as above
            return f"{at}.{name}: {own}" if at else f"{name}: {own}"
    return f"{at or cls.__name__}: {error}"
