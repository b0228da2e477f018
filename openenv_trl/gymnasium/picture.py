"""What the debug page shows of a Gymnasium environment: its frame as a picture or as text."""

from __future__ import annotations

import base64
import html
import io
from typing import Any, cast

import numpy


def is_picture(frame: Any) -> bool:
    """Whether a value is an array of pixels: grey, RGB or RGBA."""
    if not isinstance(frame, numpy.ndarray):
        return False
    pixels = cast("Any", frame)
    if pixels.dtype != numpy.uint8 or min(pixels.shape, default=0) == 0:
        return False
    return pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (1, 3, 4))


def frame_as_html(frame: Any, words: str) -> str:
    """Return a frame as HTML in which all is escaped and nothing is loaded.

    Args:
        frame: An array of pixels, or text.
        words: What the frame shows, for who cannot see it.
    """
    if isinstance(frame, str):
        return f"<pre>{html.escape(frame)}</pre>"
    try:
        png = base64.b64encode(_png(frame)).decode("ascii")
    except ImportError:
        return "<p>Pictures are shown where Pillow is installed: <code>pip install pillow</code>.</p>"
    style = "image-rendering:pixelated;max-width:100%;min-width:240px"
    return f'<img alt="{html.escape(words)}" src="data:image/png;base64,{png}" style="{style}">'


def _png(frame: Any) -> bytes:
    from PIL import Image

    pixels = frame[:, :, 0] if frame.ndim == 3 and frame.shape[2] == 1 else frame
    buffer = io.BytesIO()
    Image.fromarray(numpy.ascontiguousarray(pixels)).save(buffer, "PNG")
    return buffer.getvalue()
