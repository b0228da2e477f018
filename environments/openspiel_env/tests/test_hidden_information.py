"""What a player is shown is the same in all worlds that it cannot tell apart: nothing hidden leaks.

Two histories are one to a player where OpenSpiel's information state is the same. Whatever then differs in what this
environment shows (the message, the tensor, the legal moves, the others' moves) would tell what is hidden.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pyspiel
import pytest
from openspiel_env.models import OpenSpielObservation
from openspiel_env.server import games
from openspiel_env.server.match import Match
from openspiel_env.server.observing import observation_of
from openspiel_env.server.opponents import SIMPLE

# Each with so many random matches that all of its small worlds are met, or many of the others.
SAMPLED: list[tuple[str, dict[str, Any], int]] = [
    ("kuhn_poker", {}, 600),
    ("kuhn_poker", {"players": 3}, 900),
    ("goofspiel", {"num_cards": 3, "imp_info": True}, 900),
    ("goofspiel", {"num_cards": 3, "imp_info": True, "points_order": "descending"}, 600),
    ("leduc_poker", {}, 900),
    ("tiny_hanabi", {}, 600),
    ("first_sealed_auction", {"max_value": 4}, 900),
    ("liars_dice", {"numdice": 1, "dice_sides": 3}, 900),
    ("phantom_ttt", {}, 900),
    ("dark_hex", {"num_rows": 2, "num_cols": 2}, 900),
    (
        "battleship",
        {"board_width": 2, "board_height": 2, "ship_sizes": "[1]", "ship_values": "[1]", "num_shots": 2},
        900,
    ),
    ("bargaining", {"max_turns": 2}, 300),
    ("leduc_poker", {"players": 3}, 900),
    ("phantom_ttt_ir", {}, 800),
    ("oh_hell", {"num_cards_per_suit": 3, "num_suits": 2}, 600),
    ("universal_poker", {}, 600),
]


def shown(match: Match, player: int) -> dict[str, Any]:
    """All that the player's session would get, without the reward."""
    observation: OpenSpielObservation = observation_of(match, player, 100, initial=False)
    return observation.model_dump(exclude={"reward"})


class Worlds:
    """What each player was shown, by what it may know."""

    def __init__(self) -> None:
        self.by_knowledge: dict[tuple[int, str], list[tuple[list[int], dict[str, Any]]]] = defaultdict(list)

    def play(self, match: Match, choose: Any) -> None:
        """Play a match in which all are agents, and note what each is shown when it is to move."""
        while not match.over:
            for player in match.awaited():
                knowledge = match.state.information_state_string(player)
                self.by_knowledge[player, knowledge].append((match.state.history(), shown(match, player)))
            for player in match.awaited():
                match.choose(player, choose(match.legal_actions(player)))

    def check(self, least: int) -> None:
        """Nobody is shown more than it may know, and there were worlds to tell apart."""
        several = 0
        for (player, knowledge), worlds in self.by_knowledge.items():
            histories = {tuple(history) for history, _ in worlds}
            several += len(histories) > 1
            first = worlds[0][1]
            for history, seen in worlds[1:]:
                assert seen == first, f"player {player} who knows {knowledge!r} is shown more after {history}"
        assert several >= least


def everyone(name: str, parameters: dict[str, Any], seed: int) -> Match:
    game = games.load(name, parameters)
    return Match(game, range(game.players), {}, seed)


@pytest.mark.parametrize(("name", "parameters", "matches"), SAMPLED, ids=lambda value: str(value))
def test_nothing_hidden_is_shown_in_any_world(name: str, parameters: dict[str, Any], matches: int) -> None:
    worlds = Worlds()
    for seed in range(matches):
        worlds.play(everyone(name, parameters, seed), random.Random(seed).choice)
    worlds.check(least=2)


def test_the_check_finds_a_leak() -> None:
    worlds = Worlds()
    for seed in range(200):
        match = everyone("phantom_ttt", {}, seed)
        object.__setattr__(match.game, "moves_are_public", True)
        worlds.play(match, random.Random(seed).choice)
        object.__setattr__(match.game, "moves_are_public", False)
    with pytest.raises(AssertionError, match="is shown more"):
        worlds.check(least=1)


def test_kuhn_poker_deals_every_pair_of_cards_and_shows_one() -> None:
    seen: dict[str, set[str]] = defaultdict(set)
    for seed in range(300):
        match = everyone("kuhn_poker", {}, seed)
        own, other = match.state.history()[:2]
        seen[shown(match, 0)["message"]].add(str(other))
        assert f"Your card: {own} " in shown(match, 0)["message"]
    assert {message: len(others) for message, others in seen.items()} == dict.fromkeys(seen, 2)
    assert len(seen) == 3


def test_the_policies_that_see_all_are_kept_out_of_games_that_hide_something() -> None:
    for name in pyspiel.registered_names():
        try:
            game = games.load(name, {})
        except Exception:  # one that cannot be played here at all
            continue
        kind = game.rules.get_type()
        if kind.information != type(kind).Information.PERFECT_INFORMATION:
            assert game.simultaneous or not game.moves_are_public or name in games._PUBLIC_MOVES
    assert set(SIMPLE) == {"random", "first", "last", "middle"}
