"""The games that there are, by the names that people give them.

ALE brings the ROMs along. A few of them are games for two that ALE itself cannot load alone; those are refused here,
since ALE would end the whole process.
"""

from __future__ import annotations

import difflib
import functools
import re
from pathlib import Path

from ale_py import ALEInterface, roms

from openenv_trl.errors import ConfigurationError

_REGISTERED = re.compile(r"(?:.*/)?(.*?)(?:-ram)?(?:Deterministic|NoFrameskip)?(?:-v\d+)?", re.DOTALL)


@functools.cache
def rom_of(name: str) -> tuple[str, Path]:
    """The game's name as ALE has it, and its ROM.

    Args:
        name: "space_invaders", "SpaceInvaders" or as Gymnasium registers it, "ALE/SpaceInvaders-v5".

    Raises:
        ConfigurationError: No such game, or one that ALE cannot load.
    """
    wanted = _letters(name)
    if wanted not in _by_letters():
        near = difflib.get_close_matches(wanted, _by_letters(), n=4, cutoff=0.6)
        meant = f"Did you mean {', '.join(_by_letters()[each] for each in near)}? " if near else ""
        raise ConfigurationError(
            f"There is no Atari game '{name:.80}'. {meant}All {len(playable_games())} of them: "
            f"python -m atari_env.server.games"
        )
    game = _by_letters()[wanted]
    path = roms.get_rom_path(game)
    if path is None or not path.is_file():
        raise ConfigurationError(f"ale-py has no ROM of '{game}' here. Install it again, or unset ALE_ROMS_DIR.")
    if ALEInterface.isSupportedROM(str(path)) is None:
        raise ConfigurationError(f"'{game}' is a game for two, which ALE cannot load for one player. Choose another.")
    return game, path


@functools.cache
def playable_games() -> tuple[str, ...]:
    """The names of all games that can be played, as ALE has them."""
    found: list[str] = []
    for name in sorted(roms.get_all_rom_ids()):
        try:
            found.append(rom_of(name)[0])
        except ConfigurationError:
            continue
    return tuple(found)


def title_of(game: str) -> str:
    """The game's name as a person writes it: "Space Invaders" for "space_invaders"."""
    return " ".join(word.capitalize() for word in game.split("_"))


def _letters(name: str) -> str:
    matched = _REGISTERED.fullmatch(name.strip())
    return re.sub(r"[\W_]", "", matched[1] if matched else name).lower()


@functools.cache
def _by_letters() -> dict[str, str]:
    return {game.replace("_", ""): game for game in sorted(roms.get_all_rom_ids())}


if __name__ == "__main__":
    print("\n".join(playable_games()))
