"""Tells a model that acts badly from an action interface that was built wrongly, and a bad task from a bad run."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from openenv_trl.errors import ActionValidationError, ConfigurationError
from openenv_trl.rollout.trajectory import EndReason, Trajectory

SUSPICIOUS_REFUSALS = 8
"""Refusals of the same kind, with nothing ever accepted, that are no longer chance."""

_STRUCTURAL = ("missing", "extra_forbidden")


class NothingButRefusals(ConfigurationError):
    """An environment refused every task of a run, and has never played one.

    Attributes:
        trajectories: What the run brought back: for who knows of other runs, in which it has played.
    """

    trajectories: Sequence[Trajectory] = ()


class RefusalWatch:
    """Counts what the environment refused: actions because of their fields' names, and tasks.

    A model can fill fields with wrong values; the names of the fields come from the action interface. If the
    environment has never accepted an action, and refused several for missing or unknown fields, the interface does
    not fit it. If it has never played a task, and refused all that it was given, then the run is set up wrongly.

    Runs may go on at once. A refusal comes sooner than the end of an episode, so a run of refused tasks proves nothing
    while those that had begun beside it are played.
    """

    def __init__(self) -> None:
        self._accepted = False
        self._played = False
        self._structural = 0
        self._running: set[object] = set()
        self._may_play: set[object] | None = None
        """The runs that went on when the first run of nothing but refusals ended, as far as they still do."""

    @property
    def has_played(self) -> bool:
        """Whether the environment has ever played a task."""
        return self._played

    @contextmanager
    def run(self) -> Generator[object]:
        """A run goes on in the block; what it gives names the run to `ended`."""
        run = object()
        self._running.add(run)
        try:
            yield run
        finally:
            self._running.discard(run)
            if self._may_play is not None:
                self._may_play.discard(run)

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

    def ended(self, ends: Iterable[tuple[EndReason | None, str | None]], run: object = None) -> None:
        """Episodes that were played together have ended.

        Args:
            ends: How each ended, and what went wrong if something did.
            run: Which run they were; None where there is one at a time.

        Raises:
            NothingButRefusals: The environment refused every one, and has never taken another: the text has its words.
        """
        listed = list(ends)
        refused = [error for reason, error in listed if reason is EndReason.CONFIGURATION_ERROR]
        self._played = self._played or any(reason is not None and not reason.is_failure for reason, _ in listed)
        if self._played or not refused or len(refused) < len(listed):
            return
        if self._may_play is None:
            self._may_play = set(self._running)
        if self._may_play - {run}:
            return
        words = list(dict.fromkeys(error or "" for error in refused))
        more = f" (and {len(words) - 1} more such texts)" if len(words) > 1 else ""
        raise NothingButRefusals(
            f"The environment refused all {len(refused)} episodes that it was asked for, and has played none so far: "
            f"{words[0]:.2000}{more} What is asked for are the task's reset arguments (the dataset's columns) and, on "
            "the server, its settings: correct those. It was not tried again, since that cannot help."
        )


def _is_structural(detail: Any) -> bool:
    if not isinstance(detail, Mapping):
        return False
    fields = cast("Mapping[str, Any]", detail)
    where: Any = fields.get("loc", ())
    return isinstance(where, (list, tuple)) and len(cast("list[Any]", where)) <= 1 and fields.get("type") in _STRUCTURAL
