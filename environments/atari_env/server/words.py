"""A screen in words: what a language model that has no eyes plays from.

Where the game's RAM is known (`atari_env.server.ram`), the words name what is where, and how it moved since the last
message. Elsewhere a grid of the screen's colours stands for it.
"""

from __future__ import annotations

from collections import Counter

from atari_env.server.episode import Episode
from atari_env.server.games import title_of
from atari_env.server.grid import grid_of
from atari_env.server.ram import HINTS, MAZES, READERS, Scene, Sight


class Teller:
    """Tells an episode's screens in words, one a step.

    Args:
        episode: The episode.
    """

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        game = episode.console.game
        self._reader = READERS.get(game)
        wanted = episode.settings.text_grid
        self._draws = wanted == "always" or (wanted == "auto" and (self._reader is None or game in MAZES))
        self._before: dict[str, Sight] = {}

    def tell(self, first: bool = False) -> str:
        """The screen as it is now; the ``first`` time with how the game is played and what the actions are."""
        lines = [self._heading()]
        if first:
            lines += self._introduction()
        if self._reader is not None:
            lines += self._scene(self._reader(self._episode.console.ram().tolist()))
        if self._draws:
            console, settings = self._episode.console, self._episode.settings
            lines += grid_of(console.palette(), console.rgb(), settings.text_columns, settings.text_rows)
        return "\n".join(lines)

    def _heading(self) -> str:
        episode = self._episode
        words = [title_of(episode.console.game), f"score {episode.score}"]
        lives = episode.console.lives()
        if lives:
            words.append(f"lives {lives}")
        words.append(f"frame {episode.frames}")
        if episode.over:
            words.append("cut off by the limit of frames" if episode.truncated else "the game is over")
        return ", ".join(words) + "."

    def _introduction(self) -> list[str]:
        episode = self._episode
        height, width = episode.console.palette().shape
        lines = [HINTS[episode.console.game]] if episode.console.game in HINTS else []
        if self._reader is not None:
            lines.append(f"The screen is {width} wide and {height} high; x grows to the right, y downwards.")
        if self._draws:
            settings = episode.settings
            lines.append(
                f"The screen in {settings.text_columns} x {settings.text_rows} cells, each by the rarest colour in it:"
            )
        lines.insert(0, f"Actions: {', '.join(action.name for action in episode.actions)}.")
        return lines

    def _scene(self, scene: Scene) -> list[str]:
        often = Counter(sight.name for sight in scene.sights)
        lines = [f"{'; '.join(scene.facts)}."] if scene.facts else []
        for sight in scene.sights:
            x, y = sight.centre
            line = f"{sight.name}: x {x}, y {y}"
            before = self._before.get(sight.name)
            if before is not None and often[sight.name] == 1:
                line += f", moved {sight.x - before.x:+d}, {sight.y - before.y:+d}"
            lines.append(line)
        self._before = {sight.name: sight for sight in scene.sights if often[sight.name] == 1}
        return lines
