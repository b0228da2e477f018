"""Tells a model that acts badly from an action interface that was built wrongly, and a bad task from a bad run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from openenv_trl.errors import ActionValidationError, ConfigurationError
from openenv_trl.rollout.trajectory import EndReason

SUSPICIOUS_REFUSALS = 8
"""Refusals of the same kind, with nothing ever accepted, that are no longer chance."""

_STRUCTURAL = ("missing", "extra_forbidden")


class RefusalWatch:
    """Counts what the environment refused: actions because of their fields' names, and tasks.

    A model can fill fields with wrong values; the names of the fields come from the action interface. If the
    environment has never accepted an action, and refused several for missing or unknown fields, the interface does
    not fit it. If it has never played a task, and refused all that it was given, then the run is set up wrongly.
    """

    def __init__(self) -> None:
        self._accepted = False
        self._played = False
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

    def ended(self, ends: Iterable[tuple[EndReason | None, str | None]]) -> None:
        """Episodes that were played together have ended.

        Args:
            ends: How each ended, and what went wrong if something did.

        Raises:
            ConfigurationError: The environment refused every one, and has never taken another: the text has its words.
        """
        listed = list(ends)
        refused = [error for reason, error in listed if reason is EndReason.CONFIGURATION_ERROR]
        self._played = self._played or any(reason is not None and not reason.is_failure for reason, _ in listed)
        if self._played or not refused or len(refused) < len(listed):
            return
        words = list(dict.fromkeys(error or "" for error in refused))
        more = f" (and {len(words) - 1} more such texts)" if len(words) > 1 else ""
        raise ConfigurationError(
            f"The environment refused all {len(refused)} episodes that it was asked for, and has played none so far: "
            f"{words[0]}{more} What is asked for are the task's reset arguments (the dataset's columns) and, on the "
            "server, its settings: correct those. It was not tried again, since that cannot help."
        )


def _is_structural(detail: Any) -> bool:
    if not isinstance(detail, Mapping):
        return False
    fields = cast("Mapping[str, Any]", detail)
    where: Any = fields.get("loc", ())
    return isinstance(where, (list, tuple)) and len(cast("list[Any]", where)) <= 1 and fields.get("type") in _STRUCTURAL
