"""The rules are Gymnasium's Blackjack-v1, card for card, and the sentence tells what the fields tell."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import gymnasium
import gymnasium.envs.toy_text.blackjack as reference
import pytest
from blackjack_env.models import BlackjackAction, BlackjackObservation
from blackjack_env.server.blackjack_environment import BlackjackEnvironment, hand_sum
from blackjack_env.server.shoe import Shoe
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError

HIT, STAND = BlackjackAction(move="hit"), BlackjackAction(move="stand")
SEEDS = st.integers(min_value=0, max_value=2**63)
MOVES = st.lists(st.sampled_from([HIT, STAND]), min_size=1, max_size=12)


def seed_with(first: int, second: int, dealer: tuple[int, ...], then: tuple[int, ...] = ()) -> int:
    """The smallest seed that deals the player's first two cards, the dealer's two and then ``then``."""
    wanted = (first, second, *dealer, *then)
    for seed in itertools.count():
        shoe = Shoe(seed)
        if all(shoe.card(index) == card for index, card in enumerate(wanted)):
            return seed
    raise AssertionError


@pytest.mark.parametrize(("natural", "sab"), [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_every_hand_goes_as_in_gymnasium_with_the_same_cards(
    monkeypatch: pytest.MonkeyPatch, natural: bool, sab: bool
) -> None:
    theirs: Any = gymnasium.make("Blackjack-v1", natural=natural, sab=sab).unwrapped
    ours = BlackjackEnvironment(natural=natural, sab=sab)
    choices = random.Random(5)
    rewards_seen: set[float] = set()
    for seed in range(2500):
        shoe = Shoe(seed)
        # Gymnasium deals the dealer first.
        cards = map(shoe.card, itertools.chain((2, 3, 0, 1), itertools.count(4)))
        monkeypatch.setattr(reference, "draw_card", lambda _, cards=cards: next(cards))
        their_table, _ = theirs.reset(seed=seed)
        table = ours.reset(seed=seed)
        done = False
        while not done:
            assert (table.player_sum, table.dealer_card, int(table.usable_ace)) == tuple(map(int, their_table))
            move = choices.choice((HIT, STAND)) if table.player_sum < 18 else STAND
            table = ours.step(move)
            their_table, their_reward, done, truncated, _ = theirs.step(int(move is HIT))
            assert (table.reward, table.done) == (their_reward, done)
            assert not truncated
        rewards_seen.add(table.reward or 0.0)
    assert rewards_seen == {-1.0, 0.0, 1.0} | ({1.5} if natural and not sab else set())


@given(seed=SEEDS, moves=MOVES)
def test_fields_message_and_rewards_agree_in_every_hand(seed: int, moves: list[BlackjackAction]) -> None:
    environment = BlackjackEnvironment()
    table = environment.reset(seed=seed)
    assert table.reward is None
    assert len(table.player_cards) == 2
    for move in moves:
        assert not table.done
        assert (table.player_sum, table.usable_ace) == hand_sum(table.player_cards)
        assert table.dealer_cards == [table.dealer_card]
        ace = "usable ace" if table.usable_ace else "no usable ace"
        assert table.message == (
            f"Your hand: {', '.join(map(str, table.player_cards))}. Sum {table.player_sum}, {ace}. "
            f"The dealer shows {table.dealer_card}."
        )
        before, table = table, environment.step(move)
        if move is HIT:
            assert table.player_cards[:-1] == before.player_cards
            assert table.done == (table.player_sum > 21)
            assert table.reward == (-1.0 if table.done else 0.0)
        else:
            assert table.player_cards == before.player_cards
            check_the_showdown(table)
        if table.done:
            break


def check_the_showdown(table: BlackjackObservation) -> None:
    dealer, _ = hand_sum(table.dealer_cards)
    assert table.done
    assert dealer >= 17
    assert hand_sum(table.dealer_cards[:-1])[0] < 17
    outcome = 1 if dealer > 21 or table.player_sum > dealer else 0 if table.player_sum == dealer else -1
    assert table.reward == outcome
    words = {1: "You win.", 0: "It is a draw.", -1: "You lose."}[outcome]
    cards = ", ".join(map(str, table.dealer_cards))
    assert table.message == f"The dealer has {cards}: {dealer}{', bust' if dealer > 21 else ''}. {words}"


def test_sums_count_one_ace_as_eleven_where_it_fits() -> None:
    assert hand_sum([10, 6]) == (16, False)
    assert hand_sum([1, 7]) == (18, True)
    assert hand_sum([1, 1]) == (12, True)
    assert hand_sum([1, 5, 10]) == (16, False)
    assert hand_sum([1, 10]) == (21, True)


def test_messages_read_as_documented() -> None:
    environment = BlackjackEnvironment()
    opening = environment.reset(seed=seed_with(10, 6, (7,)))
    assert opening.message == "Your hand: 10, 6. Sum 16, no usable ace. The dealer shows 7."
    assert environment.reset(seed=seed_with(1, 7, (10,))).message == (
        "Your hand: 1, 7. Sum 18, usable ace. The dealer shows 10."
    )
    environment.reset(seed=seed_with(10, 6, (7,), (10, 9)))
    assert environment.step(HIT).message == "You drew 9 and have 25: bust. You lose."
    environment.reset(seed=seed_with(10, 8, (7, 10)))
    assert environment.step(STAND).message == "The dealer has 7, 10: 17. You win."
    environment.reset(seed=seed_with(10, 7, (7, 10)))
    assert environment.step(STAND).message == "The dealer has 7, 10: 17. It is a draw."
    environment.reset(seed=seed_with(10, 7, (10, 6), (9,)))
    assert environment.step(STAND).message == "The dealer has 10, 6, 9: 25, bust. You win."


def test_the_dealer_stands_on_a_soft_17() -> None:
    environment = BlackjackEnvironment()
    environment.reset(seed=seed_with(10, 8, (1, 6)))
    assert environment.step(STAND).dealer_cards == [1, 6]


def test_natural_pays_more_only_where_asked_for_and_only_for_two_cards() -> None:
    environment = BlackjackEnvironment()
    seed = seed_with(1, 10, (10, 9))
    for natural, reward in ((None, 1.0), (True, 1.5), (False, 1.0)):
        environment.reset(seed=seed, natural=natural)
        assert environment.step(STAND).reward == reward
    constructed = BlackjackEnvironment(natural=True)
    for natural, reward in ((None, 1.5), (False, 1.0), (None, 1.5)):
        constructed.reset(seed=seed, natural=natural)
        assert constructed.step(STAND).reward == reward
    environment.reset(seed=seed, natural=True, sab=True)
    assert environment.step(STAND).reward == 1.0
    environment.reset(seed=seed_with(5, 6, (10, 9), (10,)), natural=True)
    environment.step(HIT)
    assert environment.step(STAND).reward == 1.0


def test_sab_lets_a_natural_win_against_any_other_21() -> None:
    seed = seed_with(1, 10, (7, 4), (10,))
    for sab, reward in ((False, 0.0), (True, 1.0)):
        environment = BlackjackEnvironment(sab=sab)
        environment.reset(seed=seed)
        assert environment.step(STAND).reward == reward
    both = seed_with(1, 10, (1, 10))
    environment.reset(seed=both, sab=True)
    assert environment.step(STAND).reward == 0.0


def test_a_step_outside_a_hand_names_reset_and_changes_nothing() -> None:
    environment = BlackjackEnvironment()
    with pytest.raises(SessionStateError, match="reset"):
        environment.step(HIT)
    assert environment.state.step_count == 0
    environment.reset(seed=3)
    environment.step(STAND)
    before = environment.state
    for _ in range(2):
        with pytest.raises(SessionStateError, match=r"over.*reset"):
            environment.step(HIT)
    assert environment.state == before


@pytest.mark.anyio
async def test_tools_play_the_same_hand_as_actions_and_run_without_a_thread() -> None:
    by_action, by_tool = BlackjackEnvironment(), BlackjackEnvironment()
    assert [tool.name for tool in BlackjackEnvironment.list_tools()] == ["hit", "stand"]
    assert all(tool.description for tool in BlackjackEnvironment.list_tools())
    assert BlackjackEnvironment.async_tools() == {"hit", "stand"}
    seed = seed_with(2, 3, (10,), (10, 4))
    assert by_action.reset(seed=seed) == by_tool.reset(seed=seed)
    assert by_action.step(HIT) == await by_tool.call_tool("hit", {})
    assert by_action.step(STAND) == await by_tool.call_tool("stand", {})
    assert by_action.state.step_count == by_tool.state.step_count == 2
    with pytest.raises(ActionValidationError, match="double"):
        by_tool.call_tool("double", {})


def test_wrong_arguments_are_refused_with_what_is_allowed() -> None:
    environment = BlackjackEnvironment()
    with pytest.raises(ConfigurationError, match=r"'sed'.*task_seed"):
        environment.reset(sed=3)
    with pytest.raises(ConfigurationError, match="task_seed must be an integer"):
        environment.reset(seed=1, task_seed="7")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValidationError, match=re.escape("'hit' or 'stand'")):
        BlackjackAction(move="split")  # pyright: ignore[reportArgumentType]


def test_observations_are_not_changed_by_later_steps() -> None:
    environment = BlackjackEnvironment()
    first = environment.reset(seed=seed_with(2, 3, (10,)))
    copy = first.model_copy(deep=True)
    environment.step(HIT)
    assert first == copy
