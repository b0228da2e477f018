"""Task groups raise groups of errors; callers of this package catch errors."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def first_error_alone() -> Generator[None, None, None]:
    """Raise the first error of an exception group by itself."""
    try:
        yield
    except BaseException as raised:
        error = raised
        while inner := getattr(error, "exceptions", None):  # the attribute of a group, in every version of Python
            error = inner[0]
        if error is raised:
            raise
        raise error from error.__cause__
