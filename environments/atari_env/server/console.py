"""A console with its game in it: one ALE, switched on anew for every episode.

ALE's own reset leaves something of the game before it in about a quarter of the games. Restoring the state of a console
that was just loaded, and resetting then, leaves nothing in any of them: a console that was used is as good as a new one
(the tests hold every game to it). That costs some milliseconds, where loading the ROM again costs over a hundred; so
consoles are kept on a shelf when their session has ended.

Source: M. Bellemare et al., "The Arcade Learning Environment", 2013; ale-py for the interface.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path

import numpy as np
from ale_py import Action, ALEInterface, LoggerMode
from numpy.typing import NDArray

from atari_env.server.games import rom_of
from openenv_trl.errors import ConfigurationError

ALEInterface.setLoggerMode(LoggerMode.Error)

Pixels = NDArray[np.uint8]


class Console:
    """One ALE with one game, and no chance of its own: sticky actions and no-ops are its player's.

    Args:
        game: The game's name as ALE has it.
        rom: Where its ROM is.
        color_averaging: Whether each screen is averaged with the one before it, as a television's phosphor does.
    """

    def __init__(self, game: str, rom: Path, color_averaging: bool = False) -> None:
        self.game = game
        self.color_averaging = color_averaging
        self._ale = ALEInterface()
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._ale.setInt("random_seed", 0)
        self._ale.setBool("color_averaging", color_averaging)
        self._ale.loadROM(str(rom))
        self._loaded = self._ale.cloneSystemState()
        self.minimal_actions: tuple[Action, ...] = tuple(self._ale.getMinimalActionSet())
        self.all_actions: tuple[Action, ...] = tuple(self._ale.getLegalActionSet())
        self.modes: tuple[int, ...] = tuple(self._ale.getAvailableModes())
        self.difficulties: tuple[int, ...] = tuple(self._ale.getAvailableDifficulties())

    def switch_on(self, mode: int | None = None, difficulty: int | None = None) -> None:
        """Begin the game as on a console that was never used.

        Args:
            mode: The game's mode; its default if None.
            difficulty: The game's difficulty; its default if None.

        Raises:
            ConfigurationError: The game has no such mode or difficulty. The console is as it was.
        """
        self.check(mode, difficulty)
        self._ale.restoreSystemState(self._loaded)
        if mode is not None:
            self._ale.setMode(mode)
        if difficulty is not None:
            self._ale.setDifficulty(difficulty)
        self._ale.reset_game()

    def check(self, mode: int | None, difficulty: int | None) -> None:
        """See whether the game has that mode and that difficulty.

        Raises:
            ConfigurationError: It has not; the message lists those that it has.
        """
        for name, value, known in (("mode", mode, self.modes), ("difficulty", difficulty, self.difficulties)):
            if value is not None and value not in known:
                raise ConfigurationError(f"'{self.game}' has no {name} {value}. It has: {', '.join(map(str, known))}.")

    def frame(self, action: Action) -> int:
        """Hold the joystick so for one frame; returns what it scored."""
        return self._ale.act(action)

    def is_over(self) -> bool:
        """Whether the game has ended."""
        return self._ale.game_over(with_truncation=False)

    def lives(self) -> int:
        """Lives that are left."""
        return self._ale.lives()

    def rgb(self) -> Pixels:
        """The screen's colours: height, width, 3."""
        return self._ale.getScreenRGB()

    def grayscale(self) -> Pixels:
        """The screen's luminance: height, width."""
        return self._ale.getScreenGrayscale()

    def palette(self) -> Pixels:
        """The screen's colours by their number in the console's palette: height, width."""
        return self._ale.getScreen()

    def ram(self) -> Pixels:
        """The console's 128 bytes."""
        return self._ale.getRAM()


class Shelf:
    """Consoles that nobody plays on, so that the next session need not load one.

    Args:
        max_spare: How many are kept, of all games together. One holds about 0.7 MB.
    """

    def __init__(self, max_spare: int = 64) -> None:
        self._max_spare = max_spare
        self._spare: defaultdict[tuple[str, bool], list[Console]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, game: str, color_averaging: bool = False) -> Console:
        """A console with that game: one of the shelf, or a new one.

        Raises:
            ConfigurationError: There is no such game.
        """
        name, rom = rom_of(game)
        with self._lock:
            spare = self._spare[name, color_averaging]
            if spare:
                return spare.pop()
        return Console(name, rom, color_averaging)

    def give_back(self, console: Console) -> None:
        """Put a console back that is not used any more."""
        with self._lock:
            if sum(map(len, self._spare.values())) < self._max_spare:
                self._spare[console.game, console.color_averaging].append(console)


SHELF = Shelf()
"""The consoles of this process."""
