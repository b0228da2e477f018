"""Long lists in pages: at most so many entries, and a token for the next page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, TypeVar

from calendar_env.server.errors import invalid

Entry = TypeVar("Entry")


def page(
    entries: Sequence[Entry], max_results: Any, page_token: Any, *, usual: int, most: int
) -> tuple[Sequence[Entry], str | None]:
    """One page of a list, and the token of the next one, if there is one.

    Args:
        entries: The whole list.
        max_results: Entries of a page, as the caller wants; ``usual`` if None, never more than ``most``.
        page_token: The token that the page before came with; None for the first page.
        usual: Entries where the caller says nothing.
        most: Entries at most.

    Raises:
        CalendarError: The number is none, or the token is not one of this list.
    """
    size = usual if max_results is None else max_results
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise invalid(f"maxResults must be a number from 1 to {most}, not {max_results!r:.40}.")
    first = 0 if page_token is None else _offset(page_token)
    if first and first >= len(entries):
        raise invalid("Invalid page token. Start again without pageToken.", "invalidParameter")
    last = first + min(size, most)
    return entries[first:last], _token(last) if last < len(entries) else None


def _token(offset: int) -> str:
    return base64.urlsafe_b64encode(f"page:{offset}".encode()).decode().rstrip("=")


def _offset(token: Any) -> int:
    try:
        text = base64.urlsafe_b64decode(str(token) + "=" * (-len(str(token)) % 4)).decode()
        word, _, offset = text.partition(":")
        if word != "page" or not offset.isdecimal():
            raise ValueError(text)
        return int(offset)
    except (ValueError, binascii.Error) as error:
        raise invalid(
            "Invalid page token. Give nextPageToken of the page before, unchanged.", "invalidParameter"
        ) from error
