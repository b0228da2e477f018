"""Whatever happens in a match, its books balance: rewards, moves, whose turn it is, and how it ended."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openspiel_env.models import OpenSpielAction, OpenSpielObservation
from openspiel_env.server import games
from openspiel_env.server.match import Match, play_policies
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.opponents import SIMPLE
from openspiel_env.server.settings import MatchSettings

pytestmark = pytest.mark.anyio
TESTS = Path(__file__).resolve().parent
GAMES: list[tuple[str, dict[str, Any]]] = [
    ("tic_tac_toe", {}),
    ("kuhn_poker", {"players": 3}),
    ("goofspiel", {"num_cards": 4, "players": 3}),
    ("matrix_pd", {}),
    ("catch", {}),
    ("hearts", {}),
]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(GAMES), st.integers(0, 2**40), st.integers(0, 2**20), st.integers(0, 30))
def test_rewards_add_up_to_returns_and_somebody_is_always_to_move(
    game_and_parameters: tuple[str, dict[str, Any]], seed: int, choices: int, ends_at: int
) -> None:
    game = games.load(*game_and_parameters)
    generator = random.Random(choices)
    agents = [player for player in range(game.players) if generator.random() < 0.6] or [0]
    match = Match(game, agents, {p: SIMPLE["random"] for p in range(game.players) if p not in agents}, seed)
    won = [0.0] * game.players
    told: list[list[tuple[int, int]]] = [[] for _ in range(game.players)]
    for turn in range(400):
        play_policies(match)
        awaited = match.awaited()
        assert match.over == (not awaited)
        assert match.next_choice() is None
        assert set(awaited) <= set(agents)
        assert all(bool(match.legal_actions(player)) == (player in awaited) for player in agents)
        for player in range(game.players):
            won[player] += match.take_reward(player)
            told[player].extend((move.player, move.action) for move in match.take_moves(player))
        if match.over:
            break
        player = generator.choice(awaited)
        if turn == ends_at:
            how = generator.choice(["forfeit", "left", "turn_timeout"])
            before = match.returns()
            if how == "forfeit":
                match.forfeit(player)
                assert match.returns()[player] == game.rules.min_utility()
                if game.rules.utility_sum() is not None:
                    assert sum(match.returns()) == pytest.approx(game.rules.utility_sum())
            else:
                match.stop(how, player)  # pyright: ignore[reportArgumentType]
                assert match.returns() == before
            assert match.truncated == (how != "forfeit")
        else:
            match.choose(player, generator.choice(match.legal_actions(player)))
    assert match.over
    assert won == pytest.approx(match.returns())
    for player in range(game.players):
        assert all(other != player for other, _ in told[player])
        if game.moves_are_public and game.players > 1:
            others = [each for each in told[(player + 1) % game.players] if each[0] == player]
            assert all(
                [each for each in told[watcher] if each[0] == player] == others
                for watcher in range(game.players)
                if watcher != player
            )


def test_what_ended_a_match_is_not_ended_again() -> None:
    match = Match(games.load("tic_tac_toe", {}), [0, 1], {}, 0)
    match.stop("left", 1)
    match.stop("turn_timeout", 0)
    assert match.early_end is not None
    assert (match.early_end.kind, match.early_end.player) == ("left", 1)
    assert match.legal_actions(0) == []


async def test_a_policy_that_fails_ends_the_match_for_the_other_sessions() -> None:
    failing = MatchSettings(policies={"broken": "json:loads"}, game_params={"players": 3})  # which takes no state
    game = environment_class("kuhn_poker")
    first, second = game(failing), game(failing)
    seen: list[OpenSpielObservation] = []
    arguments = {"match": "broken", "opponent_policy": "session,session,broken"}

    async def other() -> None:
        seen.append(await second.reset_async(agent_player=1, **arguments))
        with pytest.raises(TypeError):
            await second.step_async(OpenSpielAction(action_id=0))

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await first.reset_async(**arguments)
        told = await first.step_async(OpenSpielAction(action_id=0))
    assert (told.done, told.reward) == (True, 0.0)
    assert told.metadata == told.metadata | {"match_end": "policy_failed", "match_end_player": 2, "truncated": True}
    assert told.message == "The match has ended without a result: Player 2's policy failed."


async def test_a_call_that_is_cancelled_while_a_policy_computes_leaves_the_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(TESTS))
    monkeypatch.setenv("OPENSPIEL_TEST_GATE", str(tmp_path / "open"))
    held_up = MatchSettings(policies={"held_up": "own_policies:held_up"}, opponent_policy="held_up")
    environment = environment_class("tic_tac_toe")(held_up)
    await environment.reset_async(seed=0)
    async with anyio.create_task_group() as group:
        group.start_soon(environment.step_async, OpenSpielAction(action_id=0))
        while not (tmp_path / "entered").exists():
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    (tmp_path / "open").touch()
    match = environment._match
    assert match is not None
    assert match.early_end is not None
    assert match.early_end.kind == "left"
    assert (await environment.reset_async(seed=0)).legal_actions == list(range(9))


async def test_a_session_that_leaves_while_a_policy_computes_ends_the_match_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(TESTS))
    monkeypatch.setenv("OPENSPIEL_TEST_GATE", str(tmp_path / "open"))
    held_up = MatchSettings(policies={"held_up": "own_policies:held_up"}, game_params={"players": 3})
    leaves, stays = (environment_class("kuhn_poker")(held_up) for _ in range(2))
    arguments = {"match": "left", "opponent_policy": "session,session,held_up"}
    seen: list[OpenSpielObservation] = []

    async def stay() -> None:
        await stays.reset_async(agent_player=1, **arguments)
        seen.append(await stays.step_async(OpenSpielAction(action_id=1)))

    async with anyio.create_task_group() as group:
        group.start_soon(stay)
        await leaves.reset_async(**arguments)
        group.start_soon(leaves.step_async, OpenSpielAction(action_id=0))
        while not (tmp_path / "entered").exists():
            await anyio.lowlevel.checkpoint()
        leaves.close()
        (tmp_path / "open").touch()
    assert (seen[0].done, seen[0].reward, seen[0].metadata["match_end"]) == (True, 0.0, "left")
    assert stays._match is not None
    assert stays._match.state.history()[3:] == [0, 1]
