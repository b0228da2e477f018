"""What was wrong with which field, small enough to be sent back.

pydantic repeats the input in every error: a message with many or large wrong fields would be answered by one that is
many times as long. So errors are told up to a number, and inputs up to a size.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic import ValidationError

MOST_ERRORS = 100
"""Errors that are told of one message; the last of them says how many more there are."""
MOST_INPUT = 10_000
"""Characters and values of an input that is repeated; a longer one is left out."""

_MOST_COUNTED = 1_000  # more are not even looked at


def error_list(error: ValidationError) -> list[dict[str, Any]]:
    """Return pydantic's error dicts with nothing in them that JSON cannot express, and no more than can be read."""
    count = error.error_count()
    if count > _MOST_COUNTED:
        return [_left_out(f"{count} errors: more than can be told.")]
    errors: list[dict[str, Any]] = []
    for each in error.errors()[:MOST_ERRORS]:
        item: dict[str, Any] = dict(each)
        if "input" in item and _size(item["input"], MOST_INPUT) > MOST_INPUT:
            item["input"] = "(left out: it is long)"
        context = item.get("ctx")
        if context:
            item["ctx"] = {k: str(v) if isinstance(v, Exception) else v for k, v in context.items()}
        errors.append(item)
    if count > MOST_ERRORS:
        errors[-1] = _left_out(f"{count - MOST_ERRORS + 1} more errors.")
    return errors


def _left_out(text: str) -> dict[str, Any]:
    return {"type": "too_many_errors", "loc": [], "msg": text, "input": None}


def _size(value: Any, most: int) -> int:
    """Characters and values that it holds; no further than a little beyond ``most``."""
    size = 0
    waiting = [value]
    while waiting and size <= most:
        each = waiting.pop()
        size += 1
        if isinstance(each, (str, bytes)):
            size += len(each)
        elif isinstance(each, int):
            size += each.bit_length() // 3
        elif isinstance(each, dict):
            inner = cast("dict[Any, Any]", each)
            size += len(inner)
            waiting.extend([*inner, *inner.values()] if size <= most else [])
        elif isinstance(each, (list, tuple, set, frozenset)):
            items = cast("list[Any]", each)
            size += len(items)
            waiting.extend(list(items) if size <= most else [])
    return size
