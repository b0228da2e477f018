"""What a language model reads tells what the board shows, and what it may answer is read as it is meant."""

from __future__ import annotations

import functools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openspiel_env.models import OpenSpielAction
from openspiel_env.server.moves import FIXED_MOVES, MOVE_TOOLS, read_move
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.settings import MatchSettings

from openenv_trl import check_environment
from openenv_trl.errors import ActionValidationError

pytestmark = pytest.mark.anyio


@given(rows=st.integers(2, 12), columns=st.integers(2, 9), seed=st.integers(0, 2**40), choices=st.integers(0, 99))
def test_catchs_sentence_tells_where_ball_and_paddle_are(
    play_match, rows: int, columns: int, seed: int, choices: int
) -> None:
    environment = environment_class("catch")()
    observations = play_match(environment, choices, seed=seed, game_params={"rows": rows, "columns": columns})
    assert len(observations) == rows
    for turn, seen in enumerate(observations[:-1]):
        cells = [index for index, cell in enumerate(seen.info_state) if cell]
        ball, paddle = min(cells), max(cells)
        assert paddle // columns == rows - 1
        assert seen.message == f"Ball column {ball % columns}, row {turn}. Paddle column {paddle % columns}."
    caught = observations[-1].reward == 1.0
    assert observations[-1].message == ("You caught the ball." if caught else "You missed the ball.")
    assert observations[-1].reward in (1.0, -1.0)


def test_left_and_right_move_the_paddle_that_way() -> None:
    environment = environment_class("catch")()
    for word, column in (("left", 1), ("stay", 2), ("right", 3)):
        assert environment.reset(seed=0).message.endswith("Paddle column 2.")
        assert environment.play_text(word).message.endswith(f"Paddle column {column}.")


def test_up_right_down_and_left_slide_the_tiles_of_2048_that_way() -> None:
    environment = environment_class("2048")()
    for word in FIXED_MOVES["2048"]:
        for seed in range(30):
            board = environment.reset(seed=seed).message.split("\n")[:4]
            tiles = [[int(cell) for cell in row.split()] for row in board]
            try:
                after = [
                    [int(cell) for cell in row.split()] for row in environment.play_text(word).message.split("\n")[:4]
                ]
            except ActionValidationError:
                continue
            lines = after if word in ("left", "right") else [list(column) for column in zip(*after, strict=True)]
            wall = 0 if word in ("left", "up") else -1
            # Two tiles at the start and one new: at least the two that were slid lie against the wall or one another.
            assert sum(1 for line in lines if line[wall]) >= 1
            assert sum(map(sum, after)) >= sum(map(sum, tiles)) + 2


def test_up_right_down_and_left_walk_that_way() -> None:
    environment = environment_class("cliff_walking")()
    places = ["row 3, column 0"]
    environment.reset(seed=0)
    for word in ("up", "right", "right", "left", "up", "down"):
        places.append(re.findall(r"You are in (row \d, column \d)\.", environment.play_text(word).message)[0])
    assert places[1:] == [
        f"row {row}, column {column}" for row, column in ((2, 0), (2, 1), (2, 2), (2, 1), (1, 1), (2, 1))
    ]
    fell = environment.play_text("down")
    assert (fell.done, fell.reward) == (True, -100.0)


def test_messages_read_as_documented() -> None:
    walking = environment_class("cliff_walking")().reset(seed=0).message
    assert walking == ("You are in row 3, column 0. The goal is row 3, column 7. The cliff is row 3, columns 1 to 6.")
    poker = environment_class("kuhn_poker")()
    assert re.fullmatch(r"Your card: [012] of 0 to 2\. So far: nothing\.", poker.reset(seed=0).message)
    assert poker.reset(seed=0, agent_player=1, opponent_policy="last").message.endswith("So far: bet.")
    cards = environment_class("blackjack")().reset(seed=0).message
    card = r"(ace|[2-9]|10|jack|queen|king)"
    assert re.fullmatch(rf"Your hand: {card}, {card}\. The dealer shows {card}\.", cards)
    squares = environment_class("tic_tac_toe")().reset(seed=0, agent_player=1, opponent_policy="first").message
    assert squares == (
        "You are o.\nx..\n...\n...\nYour moves: top, top right, left, centre, right, bottom left, bottom, bottom right."
    )
    end = environment_class("tic_tac_toe")()
    end.reset(seed=0, opponent_policy="first")
    for square in ("centre", "top right"):
        end.play_text(square)
    assert end.play_text("bottom left").message == "The game is over. You win. Scores: player 0 1, player 1 -1."


@pytest.mark.parametrize("name", ["tic_tac_toe", "connect_four", "chess", "hex", "backgammon", "leduc_poker", "2048"])
def test_every_move_that_a_message_names_is_made_when_it_is_said(play_match, name: str) -> None:
    settings = MatchSettings(max_listed_moves=1000)
    for seed in range(3):
        history = play_match(environment_class(name)(settings), seed, steps=6, seed=seed)
        if history[-1].done:
            continue
        listed = re.search(r"Your moves: (.*)\.$", history[-1].message)
        if listed is None:
            assert len(history[-1].legal_actions) == len(MOVE_TOOLS[name])
            continue
        words = listed[1].split(", ")
        assert len(words) == len(history[-1].legal_actions)
        for action, word in zip(history[-1].legal_actions, words, strict=True):
            by_text, by_number = environment_class(name)(settings), environment_class(name)(settings)
            for environment in (by_text, by_number):
                play_match(environment, seed, steps=6, seed=seed)
            assert by_text.play_text(f"  {word.upper() if name != 'chess' else word} ") == by_number.step(
                OpenSpielAction(action_id=action)
            )


def test_a_long_list_of_moves_is_cut_and_says_so() -> None:
    message = environment_class("go")(MatchSettings(max_listed_moves=3)).reset(seed=0).message
    assert re.search(r"Your moves: [^,]+, [^,]+, [^,]+, and 359 more\.$", message)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("e4", 1),
        ("E4", 3),
        (" e5 ", 2),
        ("E5", 2),
        ("7", 7),
        ("2", 2),
        ("8", None),
        ("nf3", None),
        ("", None),
        ("-1", None),
    ],
)
def test_the_text_of_a_move_is_read_loosely_and_never_guessed(text: str, found: int | None) -> None:
    moves = {1: "e4", 2: "e5", 3: "E4", 7: "Nf3", 9: "nF3"}
    assert read_move(text, moves) == found


@given(st.text(max_size=12))
def test_any_text_is_a_legal_move_or_none(text: str) -> None:
    moves = {4: "a1", 5: "b 2", 11: "pass"}
    assert read_move(text, moves) in {4, 5, 11, None}


@pytest.mark.parametrize("name", sorted(MOVE_TOOLS))
async def test_tools_make_the_moves_of_their_names_without_a_thread(name: str) -> None:
    game = environment_class(name)
    assert {tool.name for tool in game.list_tools()} == set(FIXED_MOVES[name]) == game.async_tools()
    assert all(tool.description for tool in game.list_tools())
    for action, word in enumerate(FIXED_MOVES[name]):
        by_tool, by_number = game(), game()
        opening = by_tool.reset(seed=5)
        assert opening == by_number.reset(seed=5)
        if action in opening.legal_actions:
            assert await by_tool.call_tool(word, {}) == by_number.step(OpenSpielAction(action_id=action))


async def test_a_game_of_many_moves_has_one_tool_that_takes_the_move_as_text() -> None:
    (play,) = environment_class("chess").list_tools()
    assert (play.name, play.input_schema["properties"]["move"]["type"]) == ("play", "string")
    environment = environment_class("chess")()
    environment.reset(seed=0, agent_player=0)
    with pytest.raises(ActionValidationError, match=r"'e9' is not legal now\. Your moves: "):
        await environment.call_tool("play", {"move": "e9"})
    (squares,) = environment_class("tic_tac_toe").list_tools()
    assert squares.input_schema["properties"]["move"]["enum"] == list(FIXED_MOVES["tic_tac_toe"])


CHECKED = [
    *("2048", "blackjack", "catch", "cliff_walking", "kuhn_poker", "tic_tac_toe"),  # the public environment's
    *("backgammon", "battleship", "chess", "connect_four", "euchre", "go_fish", "goofspiel", "hanabi", "laser_tag"),
    *("leduc_poker", "liars_dice", "matching_pennies_3p", "matrix_rps", "nim", "oshi_zumo", "phantom_ttt", "pig"),
    *("repeated_game(stage_game=matrix_pd(),num_repetitions=3)", "misere(game=tic_tac_toe())"),
]
# A text that names no move is an invalid action, and is told as one; what begins alike for all seeds is no fault.
NO_FAULTS = {"tool-raised", "seed-ignored"}


@pytest.mark.parametrize("name", CHECKED)
def test_the_environment_keeps_the_promises_of_its_contract(name: str) -> None:
    report = check_environment(
        environment_class(name),
        sample_actions=lambda seen, generator: {"action_id": generator.choice(seen.legal_actions)},  # pyright: ignore
        seeds=(0, 1),
        steps=8,
    )
    assert [finding for finding in report if finding.code not in NO_FAULTS] == []


@pytest.mark.parametrize(("name", "policy"), [("tic_tac_toe", "mcts:20"), ("kuhn_poker", "cfr:50")])
def test_it_keeps_them_against_policies_that_compute(name: str, policy: str) -> None:
    report = check_environment(
        functools.partial(environment_class(name), MatchSettings(opponent_policy=policy)),
        sample_actions=lambda seen, generator: {"action_id": generator.choice(seen.legal_actions)},  # pyright: ignore
        seeds=(0, 1),
    )
    assert [finding for finding in report if finding.code not in NO_FAULTS] == []


def test_the_contract_is_kept_by_tools_alone() -> None:
    assert (
        list(check_environment(environment_class("catch"), sample_actions=[{"action_id": 0}, {"action_id": 2}])) == []
    )
