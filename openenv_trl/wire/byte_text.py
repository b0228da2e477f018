"""Bytes in JSON: text where they are UTF-8, else a data URL. No two byte strings give the same text.

JSON has no bytes. The public package writes those that are UTF-8 as the text that they spell, and fails on others; so
text stays text here, and what cannot be text is marked. Text that would be taken for a mark is marked itself.

Source of the form: RFC 2397 (data URLs).
"""

from __future__ import annotations

import base64
import binascii

MARK = "data:application/octet-stream;base64,"
"""How the text of bytes begins that are not UTF-8."""

_MARK_BYTES = MARK.encode()


def text_of_bytes(value: bytes) -> str:
    """Return the text that stands for the bytes in JSON.

    Example:
        >>> text_of_bytes(b"abc"), text_of_bytes(bytes([255, 254]))
        ('abc', 'data:application/octet-stream;base64,//4=')
    """
    if not value.startswith(_MARK_BYTES):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return MARK + base64.b64encode(value).decode()


def bytes_of_text(text: str | bytes) -> bytes:
    r"""Return the bytes that a text out of JSON stands for: the inverse of `text_of_bytes`.

    Args:
        text: The text; or the same as bytes, as a model's field of type ``bytes`` holds it.

    Raises:
        ValueError: The text has the mark, and what follows is not base64.

    Example:
        >>> bytes_of_text("data:application/octet-stream;base64,//4=")
        b'\xff\xfe'
    """
    value = text.encode() if isinstance(text, str) else text
    if not value.startswith(_MARK_BYTES):
        return value
    try:
        return base64.b64decode(value[len(_MARK_BYTES) :], validate=True)
    except binascii.Error as error:
        raise ValueError(f"What follows {MARK!r} is not base64: {error}") from error
