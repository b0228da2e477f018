"""What is seen of the screen: pixels, RAM or a PNG, scaled and stacked as the settings say.

Source: V. Mnih et al., 2015, for the maximum of two frames, the small screen and the stack. The PNG and the scaling are
Pillow's; ``Resampling.BOX`` averages over the pixels that become one, as OpenCV's ``INTER_AREA`` does.
"""

from __future__ import annotations

import base64
import html
import io
from collections import deque

import numpy as np
from PIL import Image

from atari_env.server.console import Pixels
from atari_env.server.episode import Episode
from atari_env.server.games import title_of


class Eye:
    """Sees an episode's screens, one a step: each is to be looked at, or blinked at, once.

    Args:
        episode: The episode.
    """

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._kind = episode.settings.obs_type
        self._stack: deque[Pixels] = deque(maxlen=episode.settings.frame_stack)

    def look(self) -> Pixels | None:
        """What is in ``screen`` after this step; None where the screen is in words or a picture."""
        if self._kind not in ("rgb", "grayscale", "ram"):
            return None
        if self._episode.settings.frame_stack == 1:
            return self._seen()
        self.blink()
        return np.stack(tuple(self._stack))

    def blink(self) -> None:
        """Remember this step's screen for the stack."""
        if self._episode.settings.frame_stack == 1 or self._kind not in ("rgb", "grayscale", "ram"):
            return
        seen = self._seen()
        self._stack.append(seen)
        while len(self._stack) < self._episode.settings.frame_stack:
            self._stack.append(seen)

    def picture(self) -> bytes | str | None:
        """What is in ``image``: a PNG or its data URL, or None where neither is observed."""
        if self._kind not in ("png", "data_url"):
            return None
        data = png_of(self._scaled(self._pooled(self._episode.console.rgb())))
        return data if self._kind == "png" else data_url_of(data)

    def _seen(self) -> Pixels:
        console = self._episode.console
        if self._kind == "ram":
            return console.ram()
        return self._scaled(self._pooled(console.rgb() if self._kind == "rgb" else console.grayscale()))

    def _pooled(self, screen: Pixels) -> Pixels:
        before = self._episode.before
        return screen if before is None else np.maximum(screen, before)

    def _scaled(self, screen: Pixels) -> Pixels:
        size = self._episode.settings.screen_size
        if size is None or size == screen.shape[:2]:
            return screen
        height, width = size
        return np.asarray(Image.fromarray(screen).resize((width, height), Image.Resampling.BOX))


def png_of(screen: Pixels) -> bytes:
    """The screen as the bytes of a PNG file."""
    buffer = io.BytesIO()
    # Few colours in large areas: the quickest level makes some 2 KB of 100 KB.
    Image.fromarray(screen).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def data_url_of(png: bytes) -> str:
    """A PNG as the address that an <img> and models' messages take."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def figure_of(episode: Episode, screen: Pixels) -> str:
    """A screen as HTML: a picture with the score below it."""
    height, width = screen.shape[:2]
    title = html.escape(title_of(episode.console.game))
    facts = f"score {episode.score}, lives {episode.console.lives()}, frame {episode.frames}"
    return (
        f'<figure style="margin:0"><img src="{data_url_of(png_of(screen))}" alt="{title}" '
        # A pixel of the console is about twice as wide as it is high.
        f'width="{width * 3}" height="{round(height * 1.8)}" style="image-rendering:pixelated">'
        f"<figcaption>{title}: {facts}{', over' if episode.over else ''}</figcaption></figure>"
    )
