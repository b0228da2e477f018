"""How the players move that no session plays: policies by name.

A seat's policy is written ``NAME`` or ``NAME:NUMBER``; one text may give each player its own, with commas between. The
number is how much the policy computes. A policy draws from the generator that it is given and from nothing else, so
that a match can be played again.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from openenv_trl.errors import ConfigurationError
from openspiel_env.server.games import Game

OpponentName = Literal["random", "first", "last", "middle"]
"""The policies that look at nothing but the list of legal moves."""

SESSION = "session"
"""In a policy's place: another session of the server plays this player."""

Choose = Callable[[Any, int, random.Random], int]
"""Given OpenSpiel's state, the player and a generator: the number of a legal move. It leaves the state as it is."""


class Policy:
    """How one player moves.

    Args:
        choose: Chooses the move.
        blocks: Whether it may take longer than some microseconds: it then runs in a thread, on a copy of the state.
    """

    def __init__(self, choose: Choose, *, blocks: bool = False) -> None:
        self.choose = choose
        self._blocks = blocks

    @property
    def blocks(self) -> bool:
        """Whether the next choice may take long."""
        return self._blocks

    def prepare(self) -> None:
        """Compute what is computed once for a game, in the calling thread; nothing for most policies.

        Raises:
            ConfigurationError: The game does not allow it, or is too large.
        """


def _random(state: Any, player: int, generator: random.Random) -> int:
    legal = state.legal_actions(player)
    return legal[int(generator.random() * len(legal))]


def _first(state: Any, player: int, generator: random.Random) -> int:
    return state.legal_actions(player)[0]


def _last(state: Any, player: int, generator: random.Random) -> int:
    return state.legal_actions(player)[-1]


def _middle(state: Any, player: int, generator: random.Random) -> int:
    legal = state.legal_actions(player)
    return legal[len(legal) // 2]


SIMPLE: dict[str, Policy] = {
    "random": Policy(_random),
    "first": Policy(_first),
    "last": Policy(_last),
    "middle": Policy(_middle),
}
"""Each policy that needs to know no game."""

COMPUTING: dict[str, tuple[int | None, int]] = {
    "cfr": (200, 100_000),
    "greedy": (None, 0),
    "mcts": (200, 1_000_000),
    "minimax": (None, 10),
}
"""Those that compute: the number where none is given, and the largest there may be (0: it takes none)."""


@dataclass(frozen=True)
class SeatPolicy:
    """What is written of one seat: a policy's name and its number."""

    name: str
    number: int | None = None

    def __str__(self) -> str:
        return self.name if self.number is None else f"{self.name}:{self.number}"


def read_policies(text: str, own: Mapping[str, str], most: int) -> tuple[SeatPolicy, ...]:
    """Read what is written of the seats: one policy for all, or one for each player.

    Args:
        text: Such as "random", "mcts:50" or "session,random".
        own: The server's own policies: import paths by name.
        most: The largest number that may be asked for.

    Raises:
        ValueError: No such policy, or no such number of it.
    """
    return tuple(_read(part.strip(), own, most) for part in text.split(","))


def _read(text: str, own: Mapping[str, str], most: int) -> SeatPolicy:
    name, colon, number = text.partition(":")
    if name in SIMPLE or name == SESSION or name in own:
        if colon:
            raise ValueError(f"'{name}' takes no number, and '{text}' gives one")
        return SeatPolicy(name)
    if name not in COMPUTING:
        known = ", ".join(sorted({*SIMPLE, *COMPUTING, *own, SESSION}))
        raise ValueError(f"there is no policy '{name}'; there are {known}")
    usual, largest = COMPUTING[name]
    if not colon:
        return SeatPolicy(name, usual)
    largest = min(largest, most)
    if not (number.isascii() and number.isdecimal()) or not 1 <= int(number) <= largest:
        allowed = f"a whole number from 1 to {largest}" if largest else "no number"
        raise ValueError(f"'{name}' takes {allowed}, and '{text}' gives '{number}'")
    return SeatPolicy(name, int(number))


def policy_for(seat: SeatPolicy, game: Game, own: Mapping[str, str]) -> Policy:
    """The policy of a seat in this game.

    Raises:
        ConfigurationError: It cannot play this game, or cannot be imported.
    """
    if seat.name in own:
        return Policy(imported(seat.name, own[seat.name]), blocks=True)
    if seat.name in SIMPLE:
        return SIMPLE[seat.name]
    if seat.name == "cfr":
        from openspiel_env.server.equilibrium import equilibrium_policy

        return equilibrium_policy(game, seat.number or 1)
    from openspiel_env.server.search import search_policy

    return search_policy(seat.name, seat.number, game)


def imported(name: str, path: str) -> Choose:
    """The function of an import path, "package.module:function".

    Raises:
        ConfigurationError: It cannot be imported; the text says why.
    """
    module, _, attribute = path.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"The policy '{name}' cannot be imported from '{path}': {error}. Give it as \"package.module:function\", "
            "in a package that the server can import."
        ) from error
    if not callable(found):
        raise ConfigurationError(f"The policy '{name}' ('{path}') is no function but {found!r:.60}.")
    return cast("Choose", found)
