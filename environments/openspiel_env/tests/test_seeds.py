"""Seeds decide the match: all of it, or with a task seed its beginning apart from the rest."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openspiel_env.models import OpenSpielAction
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.settings import MatchSettings

SEEDS = st.integers(min_value=0, max_value=2**53)
CHANCY = ["2048", "backgammon", "blackjack", "goofspiel", "kuhn_poker", "leduc_poker", "negotiation", "tic_tac_toe"]


@pytest.mark.parametrize("name", CHANCY)
def test_a_seed_replays_the_match_whatever_was_played_before(play_match, name: str) -> None:
    fresh, used = environment_class(name)(), environment_class(name)()
    play_match(used, 7, steps=20, seed=99)
    for seed in range(5):
        assert play_match(fresh, 1, steps=20, seed=seed) == play_match(used, 1, steps=20, seed=seed)


@pytest.mark.parametrize("name", CHANCY)
def test_different_seeds_give_different_matches(play_match, name: str) -> None:
    environment = environment_class(name)()
    matches = {tuple(seen.message for seen in play_match(environment, 1, steps=20, seed=seed)) for seed in range(30)}
    assert len(matches) >= 5


@given(task_seed=SEEDS, first=SEEDS, second=SEEDS)
def test_a_task_seed_decides_the_position_that_a_match_begins_in(task_seed: int, first: int, second: int) -> None:
    environment = environment_class("leduc_poker")(MatchSettings(agent_player=1))
    begun = [environment.reset(seed=seed, task_seed=task_seed) for seed in (first, second, None)]
    assert begun[0] == begun[1] == begun[2]


def test_matches_of_one_task_differ_later_and_tasks_of_one_seed_share_the_rest(play_match) -> None:
    environment = environment_class("2048")()
    later = {play_match(environment, 0, steps=1, seed=seed, task_seed=3)[1].message for seed in range(20)}
    assert len(later) > 5
    openings = {environment.reset(seed=4, task_seed=task).message for task in range(20)}
    assert len(openings) > 10


def test_without_a_seed_matches_differ_and_the_state_tells_how_to_replay_them(play_match) -> None:
    environment = environment_class("2048")()
    assert len({environment.reset().message for _ in range(20)}) > 5
    played = play_match(environment, 2, steps=10)
    state = environment.state
    assert play_match(environment_class("2048")(), 2, steps=10, seed=state.seed, task_seed=state.task_seed) == played


def test_the_state_names_the_episode_and_how_it_is_played() -> None:
    environment = environment_class("kuhn_poker")(MatchSettings(opponent_policy="first"))
    environment.reset(seed=5, episode_id="fifth", task_seed=6, agent_player=2, game_params={"players": 3})
    environment.step(OpenSpielAction(action_id=0))
    assert environment.state.model_dump() == {
        "episode_id": "fifth",
        "step_count": 1,
        "game_name": "kuhn_poker",
        "agent_player": 2,
        "opponent_policy": "first",
        "game_params": {"players": 3},
        "num_players": 3,
        "illegal_moves": "error",
        "seed": 5,
        "task_seed": 6,
        "match": None,
    }
    environment.reset(seed=5)
    made_up = environment.state.episode_id
    assert (environment.state.step_count, environment.state.num_players) == (0, 2)
    environment.reset(seed=5)
    assert made_up
    assert environment.state.episode_id != made_up


def test_the_beginnings_of_a_seed_never_change() -> None:
    # Recorded matches and published results name seeds; these hold for every Python and every release.
    catch = environment_class("catch")()
    assert [catch.reset(seed=seed).message[12] for seed in range(8)] == list("12214314")
    board = environment_class("tic_tac_toe")()
    assert [board.reset(seed=seed, agent_player=1).opponent_last_action for seed in range(8)] == [
        2,
        4,
        3,
        3,
        8,
        6,
        2,
        7,
    ]


def test_every_column_is_as_likely_and_random_opponents_are_not_partial() -> None:
    catch = environment_class("catch")()
    columns = [catch.reset(seed=seed).message[12] for seed in range(5000)]
    board: Any = environment_class("tic_tac_toe")()
    squares = [board.reset(seed=seed, agent_player=1).opponent_last_action for seed in range(5000)]
    for drawn, values in ((columns, "01234"), (squares, range(9))):
        expected = len(drawn) / len(values)
        deviation = (expected * (1 - 1 / len(values))) ** 0.5
        assert all(abs(drawn.count(value) - expected) < 4.5 * deviation for value in values)


def test_observations_are_not_changed_by_later_steps() -> None:
    environment = environment_class("2048")()
    first = environment.reset(seed=1)
    copy = first.model_copy(deep=True)
    environment.step(OpenSpielAction(action_id=first.legal_actions[0]))
    assert first == copy


def test_types_and_client_load_neither_server_nor_openspiel_and_the_server_no_exact_values() -> None:
    code = (
        "import sys, openspiel_env.models, openspiel_env.client;"
        "print(sorted({'pyspiel', 'openspiel_env.server', 'fastapi', 'uvicorn'} & set(sys.modules)));"
        "import openspiel_env.server.app;"
        "print('openspiel_env.exact' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["[]", "False"]
