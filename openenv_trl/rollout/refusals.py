"""Tells a model that acts badly from an action interface that was built wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from openenv_trl.errors import ActionValidationError, ConfigurationError

SUSPICIOUS_REFUSALS = 8
"""Refusals of the same kind, with nothing ever accepted, that are no longer chance."""

_STRUCTURAL = ("missing", "extra_forbidden")


class RefusalWatch:
    """Counts actions that the environment refused because of their fields' names.

    A model can fill fields with wrong values; the names of the fields come from the action interface. If the
    environment has never accepted an action, and refused several for missing or unknown fields, the interface does
    not fit it.
    """

    def __init__(self) -> None:
        self._accepted = False
        self._structural = 0

    def accepted(self) -> None:
        """The environment took an action."""
        self._accepted = True

    def refused(self, error: ActionValidationError, action: dict[str, Any]) -> None:
        """The environment refused an action.

        Raises:
            ConfigurationError: The actions do not fit the environment, whatever the model does.
        """
        details: Any = error.errors  # a foreign server's may have any shape
        if self._accepted or not isinstance(details, list):
            return
        if not any(_is_structural(detail) for detail in cast("list[Any]", details)):
            return
        self._structural += 1
        if self._structural >= SUSPICIOUS_REFUSALS:
            raise ConfigurationError(
                "The environment has refused all actions so far, for missing or unknown fields. The last was "
                f"{action!r:.200}, and the answer: {error}. Let the action interface make actions with the fields of "
                "the environment's schema (GET /schema shows them)."
            ) from error


def _is_structural(detail: Any) -> bool:
    if not isinstance(detail, Mapping):
        return False
    fields = cast("Mapping[str, Any]", detail)
    where: Any = fields.get("loc", ())
    return isinstance(where, (list, tuple)) and len(cast("list[Any]", where)) <= 1 and fields.get("type") in _STRUCTURAL
