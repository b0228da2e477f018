"""Games in which all choose at once are OpenSpiel's own: one step of the agent is one joint move."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pyspiel
import pytest
from openspiel_env.models import OpenSpielAction, OpenSpielObservation
from openspiel_env.server.openspiel_environment import OpenSpielEnvironment, environment_class

pytestmark = pytest.mark.anyio
GAMES: list[tuple[str, dict[str, Any]]] = [
    ("blotto", {"coins": 4}),
    ("goofspiel", {"num_cards": 5}),
    ("goofspiel", {"num_cards": 4, "imp_info": True, "players": 3}),
    ("laser_tag", {"horizon": 20}),
    ("markov_soccer", {}),
    ("matching_pennies_3p", {}),
    ("matrix_pd", {}),
    ("matrix_rps", {}),
    ("oshi_zumo", {"coins": 8}),
]


def played(environment: OpenSpielEnvironment, seed: int, **arguments: Any) -> list[OpenSpielObservation]:
    generator = random.Random(seed)
    seen = [environment.reset(seed=seed, **arguments)]
    while not seen[-1].done and len(seen) < 200:
        action = generator.choice(seen[-1].legal_actions)
        seen.append(environment.step(OpenSpielAction(action_id=action)))
    return seen


def replayed(rules: Any, history: list[int]) -> list[Any]:
    """The positions in which players choose, and the last."""
    state = rules.new_initial_state()
    positions: list[Any] = []
    left = list(history)
    while left:
        if state.is_chance_node():
            state.apply_action(left.pop(0))
        elif state.is_simultaneous_node():
            positions.append(state.clone())
            joint, left = left[: state.num_players()], left[state.num_players() :]
            state.apply_actions(joint)
        else:
            positions.append(state.clone())
            state.apply_action(left.pop(0))
    return [*positions, state]


@pytest.mark.parametrize(("name", "parameters"), GAMES, ids=lambda value: str(value))
def test_each_step_is_one_joint_move_of_openspiels_game(name: str, parameters: dict[str, Any]) -> None:
    rules = pyspiel.load_game(name, parameters)
    kind = rules.get_type()
    environment = environment_class(name)()
    for seed in range(4):
        agent = seed % rules.num_players()
        seen = played(environment, seed, agent_player=agent, game_params=parameters)
        assert environment._match is not None
        positions = replayed(rules, environment._match.state.history())
        assert len(positions) == len(seen)
        total = 0.0
        for position, each in zip(positions, seen, strict=True):
            tensor = (
                position.information_state_tensor
                if kind.provides_information_state_tensor
                else position.observation_tensor
            )
            assert each.info_state == tensor(agent)
            assert each.legal_actions == ([] if position.is_terminal() else position.legal_actions(agent))
            assert each.current_player_id == (-4 if position.is_terminal() else agent)
            total += each.reward or 0.0
            assert total == pytest.approx(position.returns()[agent])


def test_matrix_games_pay_what_their_tables_say() -> None:
    for name, table in (
        ("matrix_rps", [[0, -1, 1], [1, 0, -1], [-1, 1, 0]]),
        ("matrix_pd", [[5, 0], [10, 1]]),
        ("matrix_mp", [[1, -1], [-1, 1]]),
    ):
        environment = environment_class(name)()
        for own, row in enumerate(table):
            for policy, other in (("first", 0), ("last", -1)):
                environment.reset(seed=0, opponent_policy=policy)
                seen = environment.step(OpenSpielAction(action_id=own))
                assert (seen.done, seen.reward) == (True, row[other])


def test_the_words_of_a_matrix_game_tell_its_table() -> None:
    seen = environment_class("matrix_rps")().reset(seed=0)
    assert seen.message == (
        "You are player 0.\n"
        "Rock earns 0 against Rock, -1 against Paper, 1 against Scissors.\n"
        "Paper earns 1 against Rock, 0 against Paper, -1 against Scissors.\n"
        "Scissors earns -1 against Rock, 1 against Paper, 0 against Scissors.\n"
        "All players choose at the same time.\n"
        "Your moves: Rock, Paper, Scissors."
    )
    column = environment_class("matrix_pd")().reset(seed=0, agent_player=1).message
    assert "Defect earns 10 against Cooperate, 1 against Defect." in column


def test_generations_of_one_task_begin_alike_and_meet_different_choices() -> None:
    environment = environment_class("matrix_rps")()
    beginnings, replies = set(), set()
    for seed in range(30):
        beginnings.add(environment.reset(seed=seed, task_seed=1).message)
        replies.add(environment.step(OpenSpielAction(action_id=0)).opponent_last_action)
    assert (len(beginnings), replies) == (1, {0, 1, 2})


@pytest.mark.parametrize(("name", "parameters"), GAMES, ids=lambda value: str(value))
async def test_sessions_choose_at_the_same_time_and_see_each_other_afterwards(
    name: str, parameters: dict[str, Any]
) -> None:
    rules = pyspiel.load_game(name, parameters)
    players = rules.num_players()
    game = environment_class(name)
    environments = [game() for _ in range(players)]
    seen: list[list[OpenSpielObservation]] = [[] for _ in range(players)]
    arguments = {"match": "joint", "opponent_policy": "session", "game_params": parameters, "seed": 3}

    async def one(player: int) -> None:
        environment, generator = environments[player], random.Random(player)
        seen[player].append(await environment.reset_async(agent_player=player, **arguments))
        while not seen[player][-1].done:
            action = generator.choice(seen[player][-1].legal_actions)
            seen[player].append(await environment.step_async(OpenSpielAction(action_id=action)))

    async with anyio.create_task_group() as group:
        for player in range(players):
            group.start_soon(one, player)
    match = environments[0]._match
    assert match is not None
    positions = replayed(rules, match.state.history())
    for player in range(players):
        assert len(seen[player]) == len(positions)
        assert sum(each.reward or 0.0 for each in seen[player]) == pytest.approx(positions[-1].returns()[player])
        for position, each in zip(positions, seen[player], strict=True):
            assert each.legal_actions == ([] if position.is_terminal() else position.legal_actions(player))
    if match.game.moves_are_public and players == 2:
        for mine, theirs in zip(seen[0][1:], seen[1][1:], strict=True):
            assert mine.metadata["moves"][0]["player"] == 1
            assert theirs.metadata["moves"][0]["player"] == 0


async def test_nobody_learns_a_choice_before_all_have_chosen() -> None:
    game = environment_class("matrix_pd")
    first, second = game(), game()
    openings: list[OpenSpielObservation] = []

    async def wait_and_look() -> None:
        openings.append(await second.reset_async(match="pd", agent_player=1, opponent_policy="session"))

    async with anyio.create_task_group() as group:
        group.start_soon(wait_and_look)
        await first.reset_async(match="pd", opponent_policy="session")
        group.start_soon(first.step_async, OpenSpielAction(action_id=1))
        while not (openings and first.state.step_count):
            await anyio.lowlevel.checkpoint()
        # The first has chosen, and the second still stands where it stood.
        match = second._match
        assert match is not None
        assert (match.awaited(), match.last_move_of_others(1), match.take_moves(1)) == ([1], None, [])
        assert match.view(1) == openings[0].info_state
        assert (await second.step_async(OpenSpielAction(action_id=0))).reward == 0.0
