"""The moves that a tool's schema lists are all there are, wherever the game stands; else it lists none."""

from __future__ import annotations

import random
from typing import Any

import pyspiel
import pytest
from openspiel_env.models import OpenSpielAction
from openspiel_env.server import games
from openspiel_env.server.moves import MOST_LISTED_IN_A_SCHEMA, MOVE_TOOLS, listed_moves, move_text
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.settings import MatchSettings

from openenv_trl.errors import ActionValidationError

pytestmark = pytest.mark.anyio
LISTED: list[tuple[str, dict[str, Any], int]] = [
    ("connect_four", {}, 7),
    ("connect_four", {"columns": 4, "rows": 4}, 4),
    ("tic_tac_toe", {}, 9),
    ("liars_dice", {}, 13),
    ("goofspiel", {"num_cards": 5}, 5),
    ("matrix_rps", {}, 3),
    ("oshi_zumo", {"coins": 10}, 11),
    ("hex", {"board_size": 3}, 9),
    ("crazy_eights", {}, 58),
    ("pig", {}, 2),
    ("phantom_ttt", {}, 18),  # each player's marks
]
UNLISTED = ["chess", "go", "backgammon", "othello", "coop_to_1p", "breakthrough"]


def enum_of(name: str, parameters: dict[str, Any]) -> list[str] | None:
    environment = environment_class(name)(MatchSettings(game_params=parameters))
    (play,) = environment.offered_tools()
    return play.input_schema["properties"]["move"].get("enum")


@pytest.mark.parametrize(("name", "parameters", "count"), LISTED, ids=lambda value: str(value))
def test_every_move_of_every_position_is_listed(name: str, parameters: dict[str, Any], count: int) -> None:
    listed = enum_of(name, parameters)
    assert listed is not None
    assert len(listed) == len(set(listed)) == count
    rules = pyspiel.load_game(name, parameters)
    generator = random.Random(99)
    for _ in range(40):
        state = rules.new_initial_state()
        while not state.is_terminal():
            if state.is_chance_node():
                state.apply_action(generator.choice(state.chance_outcomes())[0])
                continue
            players = range(rules.num_players()) if state.is_simultaneous_node() else [state.current_player()]
            for player in players:
                assert {move_text(name, state, player, action) for action in state.legal_actions(player)} <= set(listed)
            chosen = [generator.choice(state.legal_actions(player)) for player in players]
            if state.is_simultaneous_node():
                state.apply_actions(chosen)
            else:
                state.apply_action(chosen[0])


@pytest.mark.parametrize("name", UNLISTED)
def test_a_game_of_many_or_changing_moves_takes_any_text(name: str) -> None:
    assert enum_of(name, {}) is None


@pytest.mark.parametrize("name", ["connect_four", "goofspiel", "liars_dice", "tic_tac_toe"])
async def test_a_listed_move_is_also_read_in_other_case_and_by_number(name: str) -> None:
    for spell in (str, str.upper, lambda text: f" {text} "):
        by_text, by_number = environment_class(name)(), environment_class(name)()
        seen = by_text.reset(seed=1)
        assert seen == by_number.reset(seed=1)
        assert by_text._match is not None
        action = seen.legal_actions[-1]
        text = move_text(name, by_text._match.state, 0, action)
        assert await by_text.call_tool("play", {"move": spell(text)}) == by_number.step(
            OpenSpielAction(action_id=action)
        )
    environment = environment_class(name)()
    environment.reset(seed=1)
    with pytest.raises(ActionValidationError, match="not legal now"):
        await environment.call_tool("play", {"move": "somewhere"})


def test_games_with_a_tool_for_each_move_need_no_list() -> None:
    for name in MOVE_TOOLS:
        assert [tool.name for tool in environment_class(name)().offered_tools()] == list(MOVE_TOOLS[name])


def test_no_list_is_longer_than_a_model_likes_to_read() -> None:
    for name in ("kuhn_poker", "connect_four", "crazy_eights", "go", "chess"):
        moves = listed_moves(games.load(name, {}))
        assert moves is None or len(moves) <= 2 * MOST_LISTED_IN_A_SCHEMA
