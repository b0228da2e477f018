"""Seeds decide the hand: all of it, or with a task seed its first three cards apart from the rest."""

from __future__ import annotations

import subprocess
import sys

from blackjack_env.models import BlackjackAction, BlackjackObservation
from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from hypothesis import given
from hypothesis import strategies as st

SEEDS = st.integers(min_value=0, max_value=2**63)
MOVES = st.lists(st.sampled_from(["hit", "stand"]), max_size=8)


def trajectory(
    environment: BlackjackEnvironment, moves: list[str], seed: int | None, task_seed: int | None = None
) -> list[BlackjackObservation]:
    observations = [environment.reset(seed=seed, task_seed=task_seed)]
    for move in moves:
        if observations[-1].done:
            break
        observations.append(environment.step(BlackjackAction.model_validate({"move": move})))
    return observations


def first_cards(table: BlackjackObservation) -> tuple[int, ...]:
    return (*table.player_cards[:2], table.dealer_card)


@given(seed=SEEDS, task_seed=st.none() | SEEDS, moves=MOVES, other=SEEDS)
def test_a_seed_replays_the_hand_whatever_was_played_before(
    seed: int, task_seed: int | None, moves: list[str], other: int
) -> None:
    fresh, used = BlackjackEnvironment(), BlackjackEnvironment()
    trajectory(used, ["hit", "stand"], other)
    assert trajectory(fresh, moves, seed, task_seed) == trajectory(used, moves, seed, task_seed)


@given(task_seed=SEEDS, first=SEEDS, second=SEEDS)
def test_a_task_seed_decides_the_first_three_cards(task_seed: int, first: int, second: int) -> None:
    environment = BlackjackEnvironment()
    tables = [environment.reset(seed=seed, task_seed=task_seed) for seed in (first, second, None)]
    assert len({first_cards(table) for table in tables}) == 1


def test_hands_of_one_task_differ_in_their_later_cards() -> None:
    environment = BlackjackEnvironment()
    dealers = {tuple(trajectory(environment, ["stand"], seed, 11)[-1].dealer_cards) for seed in range(50)}
    draws = {tuple(trajectory(environment, ["hit"], seed, 11)[-1].player_cards) for seed in range(50)}
    assert len(dealers) > 20
    assert len(draws) == 10


def test_hands_of_one_seed_and_many_tasks_share_their_later_cards() -> None:
    environment = BlackjackEnvironment()
    third = {trajectory(environment, ["hit"], 4, task)[-1].player_cards[2] for task in range(50)}
    assert len(third) == 1


def test_neighbouring_seeds_deal_different_hands() -> None:
    environment = BlackjackEnvironment()
    assert len({first_cards(environment.reset(seed=seed)) for seed in range(100)}) > 60


def test_without_a_seed_hands_differ_and_the_state_tells_how_to_replay_them() -> None:
    environment = BlackjackEnvironment()
    tables = [environment.reset() for _ in range(30)]
    assert len({first_cards(table) for table in tables}) > 5
    state = environment.state
    assert BlackjackEnvironment().reset(seed=state.seed, task_seed=state.task_seed) == tables[-1]


def test_the_state_names_the_episode_and_counts_its_steps() -> None:
    environment = BlackjackEnvironment()
    environment.reset(seed=5, episode_id="fifth", task_seed=6, natural=True)
    environment.step(BlackjackAction(move="hit"))
    assert environment.state.model_dump() == {
        "episode_id": "fifth",
        "step_count": 1,
        "seed": 5,
        "task_seed": 6,
        "natural": True,
        "sab": False,
    }
    environment.reset(seed=5)
    made_up = environment.state.episode_id
    assert environment.state.step_count == 0
    assert environment.state.natural is False
    environment.reset(seed=5)
    assert made_up
    assert environment.state.episode_id != made_up


def test_the_cards_of_a_seed_never_change() -> None:
    # Recorded hands and published results name seeds; these cards hold for every Python and every release.
    environment = BlackjackEnvironment()
    assert [first_cards(environment.reset(seed=seed)) for seed in range(4)] == [
        (2, 10, 10),
        (9, 10, 2),
        (7, 5, 7),
        (10, 4, 3),
    ]


def test_types_and_client_load_no_server_and_the_server_no_exact_values() -> None:
    code = (
        "import sys, blackjack_env.models, blackjack_env.server.blackjack_environment;"
        "unwanted = {'blackjack_env.exact', 'blackjack_env.client', 'fastapi', 'uvicorn'};"
        "print(sorted(unwanted & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
