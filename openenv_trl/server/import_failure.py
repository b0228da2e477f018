"""What to show of an application whose import raised: its own lines and its own error, not those that imported it."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path

_NOT_THE_APPLICATIONS = (str(Path(__file__).parents[1]), str(Path(importlib.__file__).parent), "<frozen ")


def import_failure(target: str, error: Exception) -> str:
    """Return the error with its traceback, without the frames of this package and of Python's import.

    Args:
        target: What was imported, as the user gave it.
        error: What it raised.
    """
    told = traceback.TracebackException.from_exception(error)
    _leave_own_frames(told)
    return f"error: importing {target} failed:\n{''.join(told.format()).rstrip()}"


def _leave_own_frames(told: traceback.TracebackException) -> None:
    own = [frame for frame in told.stack if not frame.filename.startswith(_NOT_THE_APPLICATIONS)]
    told.stack = traceback.StackSummary.from_list(own)
    for earlier in (told.__cause__, told.__context__):
        if earlier is not None:
            _leave_own_frames(earlier)
