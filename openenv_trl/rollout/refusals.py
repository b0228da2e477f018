"""Tells a model that acts badly from an action interface that was built wrongly."""

from __future__ import annotations

from typing import Any

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
        kinds = {detail.get("type") for detail in error.errors if len(detail.get("loc", ())) <= 1}
        if self._accepted or not kinds.intersection(_STRUCTURAL):
            return
        self._structural += 1
        if self._structural >= SUSPICIOUS_REFUSALS:
            raise ConfigurationError(
                "The environment has refused all actions so far, for missing or unknown fields. The last was "
                f"{action!r:.200}, and the answer: {error}. Let the action interface make actions with the fields of "
                "the environment's schema (GET /schema shows them)."
            ) from error
