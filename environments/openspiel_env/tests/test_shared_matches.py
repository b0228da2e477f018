"""Sessions of one server play each other: everyone sees its own side, waits its turn, and is told how it ended."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pyspiel
import pytest
from openspiel_env import OpenSpielAction, OpenSpielEnv, OpenSpielObservation
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.settings import MatchSettings

from openenv_trl.client import GenericEnvClient
from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    EnvironmentExecutionError,
    SessionStateError,
)
from openenv_trl.providers import ProcessProvider

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[1]
SESSION = {"opponent_policy": "session"}


def served(**variables: str) -> Iterator[str]:
    with ProcessProvider(str(PACKAGE), env_vars=variables) as provider:
        yield provider.replicas[0].base_url


@pytest.fixture(scope="module")
def squares() -> Iterator[str]:
    yield from served(OPENSPIEL_GAME="tic_tac_toe")


@pytest.fixture(scope="module")
def poker() -> Iterator[str]:
    yield from served(OPENSPIEL_GAME="kuhn_poker", OPENSPIEL_GAME_PARAMS='{"players": 3}')


@pytest.fixture(scope="module")
def impatient() -> Iterator[str]:
    yield from served(OPENSPIEL_GAME="tic_tac_toe", OPENSPIEL_TURN_TIMEOUT_S="3", OPENSPIEL_JOIN_TIMEOUT_S="3")


@asynccontextmanager
async def sessions(url: str, count: int) -> AsyncIterator[list[OpenSpielEnv]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(OpenSpielEnv(url)) for _ in range(count)]


async def play(env: OpenSpielEnv, choices: int, **arguments: Any) -> list[OpenSpielObservation]:
    """All that a session sees of a match that it plays at random."""
    generator = random.Random(choices)
    seen = [(await env.reset(**arguments)).observation]
    while not seen[-1].done:
        action = generator.choice(seen[-1].legal_actions)
        seen.append((await env.step(OpenSpielAction(action_id=action))).observation)
    return seen


async def play_together(
    envs: list[OpenSpielEnv], players: list[int], match: str, **arguments: Any
) -> dict[int, list[OpenSpielObservation]]:
    seen: dict[int, list[OpenSpielObservation]] = {}

    async def one(env: OpenSpielEnv, player: int) -> None:
        choices = 10 * (arguments.get("seed") or 0) + player
        seen[player] = await play(env, choices, match=match, agent_player=player, **arguments)

    async with anyio.create_task_group() as group:
        for env, player in zip(envs, players, strict=True):
            group.start_soon(one, env, player)
    return seen


def total(seen: list[OpenSpielObservation]) -> float:
    return sum(each.reward or 0.0 for each in seen)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
async def test_two_sessions_play_tic_tac_toe_whoever_comes_first(squares: str, order: list[int]) -> None:
    async with sessions(squares, 2) as envs:
        for number in range(5):
            seen = await play_together(envs, order, f"match {number}", seed=number, **SESSION)
            assert (seen[0][0].game_phase, seen[0][0].opponent_last_action) == ("initial", None)
            assert seen[1][0].opponent_last_action is not None  # the first player has moved
            board = pyspiel.load_game("tic_tac_toe").new_initial_state()
            turns = {player: iter(seen[player]) for player in (0, 1)}
            for player in (0, 1) * 5:
                shown = next(turns[player], None)
                if shown is None or shown.done:
                    break
                assert shown.legal_actions == board.legal_actions()
                assert shown.message.startswith(f"You are {'xo'[player]}.\n{board}\n")
                later = seen[1 - player][seen[player].index(shown) + player]
                assert later.metadata["moves"] == [
                    {"player": player, "action": later.opponent_last_action, "move": later.metadata["moves"][0]["move"]}
                ]
                board.apply_action(later.opponent_last_action)
            assert board.is_terminal()
            assert [total(seen[0]), total(seen[1])] == board.returns()
            assert all(seen[player][-1].game_phase == "terminal" for player in (0, 1))


async def test_three_sessions_play_poker_and_what_each_wins_adds_up_to_nothing(poker: str) -> None:
    async with sessions(poker, 3) as envs:
        wins: set[float] = set()
        for seed in range(12):
            seen = await play_together(envs, [2, 0, 1], "table", seed=seed, **SESSION)
            cards = {seen[player][0].message.split()[2] for player in range(3)}
            assert len(cards) == 3  # everyone holds a card of its own
            assert sum(total(seen[player]) for player in range(3)) == 0.0
            wins.add(total(seen[0]))
            for player in range(3):
                assert all("moves" not in each.metadata or each.metadata["moves"] for each in seen[player])
                assert seen[player][-1].done
        assert len(wins) > 2


async def test_sessions_and_policies_play_in_one_match(poker: str) -> None:
    async with sessions(poker, 2) as envs:
        for seed in range(6):
            seen = await play_together(envs, [0, 2], "mixed", seed=seed, opponent_policy="session,last,session")
            assert all(
                move["move"] == "bet"
                for each in seen[2]
                for move in each.metadata.get("moves", [])
                if move["player"] == 1
            )
            assert any(move["player"] == 1 for each in seen[2] for move in each.metadata["moves"] or [])
    async with OpenSpielEnv(poker) as env:  # one session and two policies are no match of several sessions
        alone = await play(env, 3, seed=1, opponent_policy="session,last,cfr:50")
        assert alone[-1].done
        with pytest.raises(ConfigurationError, match=r"gives no player to one"):
            await env.reset(match="mixed", opponent_policy="session,last,random")


async def test_the_first_players_seed_decides_of_those_that_give_one(squares: str, poker: str) -> None:
    async def cards(seeds: list[int | None]) -> tuple[list[str], list[int]]:
        found: dict[int, tuple[str, int]] = {}

        async def one(env: OpenSpielEnv, player: int) -> None:
            opening = await env.reset(match="seeds", agent_player=player, seed=seeds[player], **SESSION)
            state = await env.state()
            found[player] = (opening.observation.message.partition(" So far")[0], state.seed)
            assert state.match == "seeds"
            while not opening.done:
                opening = await env.step(OpenSpielAction(action_id=0))

        async with sessions(poker, 3) as envs, anyio.create_task_group() as group:
            for player in (2, 1, 0):
                group.start_soon(one, envs[player], player)
        return [found[player][0] for player in range(3)], [found[player][1] for player in range(3)]

    dealt, seeds = await cards([7, 7, 7])
    assert seeds == [7, 7, 7]
    assert await cards([7, None, 9]) == (dealt, [7, 7, 7])
    assert await cards([None, 7, None]) == (dealt, [7, 7, 7])
    _, drawn = await cards([None, None, None])
    assert len(set(drawn)) == 1
    assert await cards([drawn[0], None, None]) == (_, drawn)


async def test_sessions_of_one_name_are_put_together_in_pairs(squares: str) -> None:
    """As the generations of two prompts, one for each side, come."""
    results: list[float] = []

    async def one(env: OpenSpielEnv, number: int) -> None:
        results.append(total(await play(env, number, match="group", agent_player=number % 2, seed=number, **SESSION)))

    async with sessions(squares, 40) as envs, anyio.create_task_group() as group:
        for number, env in enumerate(envs):
            group.start_soon(one, env, number)
    assert len(results) == 40
    assert sum(results) == 0.0


async def test_an_illegal_move_is_refused_or_loses_for_its_player_alone(squares: str) -> None:
    async with sessions(squares, 2) as (first, second), anyio.create_task_group() as group:
        seen: list[OpenSpielObservation] = []

        async def other() -> None:
            seen.append((await second.reset(match="m", agent_player=1, illegal_moves="loss", **SESSION)).observation)
            seen.append((await second.step(OpenSpielAction(action_id=4))).observation)

        group.start_soon(other)
        await first.reset(match="m", agent_player=0, illegal_moves="loss", **SESSION)
        await first.step(OpenSpielAction(action_id=0))
        lost = (await first.step(OpenSpielAction(action_id=0))).observation
    assert (lost.done, lost.reward, lost.message) == (True, -1.0, "That move is illegal. You lose.")
    assert (seen[-1].done, seen[-1].reward) == (True, 1.0)
    assert seen[-1].message == "Player 0 made an illegal move and loses."
    assert seen[-1].metadata == {"match_end": "illegal_move", "match_end_player": 0}
    async with sessions(squares, 2) as (first, second), anyio.create_task_group() as group:
        group.start_soon(lambda: play(second, 1, match="e", agent_player=1, **SESSION))
        await first.reset(match="e", agent_player=0, **SESSION)
        with pytest.raises(ActionValidationError, match="Your moves: top left"):
            await first.step(OpenSpielAction(action_id=9))
        assert not (await first.step(OpenSpielAction(action_id=0))).done
        group.cancel_scope.cancel()


@pytest.mark.parametrize("leaving", ["close", "reset", "drop"])
async def test_a_session_that_leaves_ends_the_match_for_the_others_without_a_result(squares: str, leaving: str) -> None:
    async with OpenSpielEnv(squares) as stays, anyio.create_task_group() as group:
        leaves = OpenSpielEnv(squares)
        await leaves.connect()
        began = anyio.Event()

        async def leave() -> None:
            await leaves.reset(match=leaving, agent_player=1, **SESSION)
            began.set()
            if leaving == "reset":
                assert (await leaves.reset(seed=1)).observation.legal_actions == list(range(9))
            await leaves.close()

        group.start_soon(leave)
        await stays.reset(match=leaving, agent_player=0, **SESSION)
        result = await stays.step(OpenSpielAction(action_id=4))
        assert began.is_set()
    assert (result.done, result.reward) == (True, 0.0)
    assert result.observation.metadata == {"match_end": "left", "match_end_player": 1, "truncated": True}
    assert result.observation.message == "The match has ended without a result: Player 1 left it."


async def test_a_session_whose_turn_it_was_learns_at_its_step_that_the_other_has_left(squares: str) -> None:
    async with OpenSpielEnv(squares) as stays:
        async with OpenSpielEnv(squares) as leaves, anyio.create_task_group() as group:

            async def first_move() -> None:
                await leaves.reset(match="gone", agent_player=0, **SESSION)
                await leaves.step(OpenSpielAction(action_id=0))

            group.start_soon(first_move)
            assert (await stays.reset(match="gone", agent_player=1, **SESSION)).observation.opponent_last_action == 0
            group.cancel_scope.cancel()  # the reply never comes
        result = await stays.step(OpenSpielAction(action_id=4))
        assert (result.done, result.observation.metadata["match_end"]) == (True, "left")
        with pytest.raises(EnvironmentExecutionError, match="over"):
            await stays.step(OpenSpielAction(action_id=4))
        assert (await stays.reset(seed=0)).observation.game_phase == "initial"


async def test_who_does_not_move_in_time_ends_the_match_for_all(impatient: str) -> None:
    async with sessions(impatient, 2) as (slow, waits), anyio.create_task_group() as group:
        seen: list[OpenSpielObservation] = []
        told = anyio.Event()

        async def wait() -> None:
            seen.append((await waits.reset(match="slow", agent_player=1, **SESSION)).observation)
            seen.append((await waits.step(OpenSpielAction(action_id=4))).observation)
            told.set()

        group.start_soon(wait)
        await slow.reset(match="slow", agent_player=0, **SESSION)
        await slow.step(OpenSpielAction(action_id=0))
        await told.wait()
        late = (await slow.step(OpenSpielAction(action_id=8))).observation
    for each, why in ((seen[1], "Player 0 did not move in time"), (late, "You did not move in time")):
        assert each.done
        assert each.metadata == each.metadata | {"match_end": "turn_timeout", "match_end_player": 0, "truncated": True}
        assert each.message == f"The match has ended without a result: {why}."


async def test_who_waits_in_vain_is_told_what_the_others_must_give(impatient: str) -> None:
    async with sessions(impatient, 3) as envs:
        errors: list[str] = []

        async def wait(env: OpenSpielEnv, **arguments: Any) -> None:
            with pytest.raises(EnvironmentExecutionError) as caught:
                await env.reset(match="vain", **SESSION, **arguments)
            errors.append(str(caught.value))

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: wait(envs[0]))
            group.start_soon(lambda: wait(envs[1]))
            group.start_soon(lambda: wait(envs[2], agent_player=1, illegal_moves="loss"))
        assert all("took the seat of player" in text and "one server process" in text for text in errors)
        assert any("player 0 (2), player 1" in text for text in errors)
        # The session stands, and the name is free.
        assert (await envs[0].reset(seed=1)).observation.legal_actions == list(range(9))


async def test_other_sessions_go_on_while_hundreds_wait(squares: str) -> None:
    async with sessions(squares, 150) as envs, OpenSpielEnv(squares) as busy, anyio.create_task_group() as group:
        done: list[int] = []
        all_but_one = anyio.Event()

        async def one(env: OpenSpielEnv, number: int) -> None:
            await play(env, number, match=f"hall {number // 2}", agent_player=number % 2, **SESSION)
            done.append(number)
            if len(done) == 148:
                all_but_one.set()

        for number, env in enumerate(envs[:-1]):
            group.start_soon(one, env, number)
        for seed in range(10):
            assert (await play(busy, seed, seed=seed))[-1].done
        await all_but_one.wait()
        assert 148 not in done  # whose partner has not come
        await one(envs[-1], 149)


async def test_workers_refuse_to_have_sessions_play_each_other() -> None:
    for url in served(OPENSPIEL_GAME="tic_tac_toe", OPENENV_TRL_WORKERS="2"):
        async with GenericEnvClient(url) as env:
            with pytest.raises(ConfigurationError, match=r"2 worker processes.*--workers 1"):
                await env.reset(match="apart", **SESSION)
            assert (await env.reset(seed=0)).observation["legal_actions"] == list(range(9))


async def test_sessions_in_processes_of_their_own_refuse_too() -> None:
    for url in served(OPENSPIEL_GAME="tic_tac_toe", OPENENV_TRL_EXECUTION="process"):
        async with GenericEnvClient(url) as env:
            with pytest.raises(ConfigurationError, match="OPENENV_TRL_EXECUTION"):
                await env.reset(match="apart", **SESSION)
            assert (await env.reset(seed=0)).observation["legal_actions"] == list(range(9))


async def test_environments_of_one_process_play_each_other_without_a_server() -> None:
    first, second = (environment_class("tic_tac_toe")(MatchSettings(opponent_policy="session")) for _ in range(2))
    with pytest.raises(ConfigurationError, match="reset_async"):
        first.reset(match="here")
    seen: list[OpenSpielObservation] = []

    async def other() -> None:
        seen.append(await second.reset_async(match="here", agent_player=1))
        seen.append(await second.step_async(OpenSpielAction(action_id=1)))

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        assert (await first.reset_async(match="here")).game_phase == "initial"
        with pytest.raises(SessionStateError, match="step_async"):
            first.step(OpenSpielAction(action_id=0))
        assert (await first.step_async(OpenSpielAction(action_id=0))).opponent_last_action == 1
        assert second.state.match == "here"
        first.close()
    assert [each.done for each in seen] == [False, True]
    assert seen[1].metadata["match_end"] == "left"
    assert first.state.match is None


async def test_frames_tell_what_happened_as_json(squares: str) -> None:
    async with sessions(squares, 2) as envs:
        seen = await play_together(envs, [0, 1], "json", seed=3, **SESSION)
        assert json.loads(json.dumps(seen[1][0].metadata)) == seen[1][0].metadata
