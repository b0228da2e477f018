"""The exact values are the known ones, and many played hands agree with them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest
from blackjack_env import exact
from blackjack_env.models import BlackjackAction, BlackjackObservation
from blackjack_env.server.blackjack_environment import BlackjackEnvironment

HANDS = 150_000
STANDARD_ERRORS = 3.3  # 99.9% two-sided; the seeds are fixed, so a pass stays a pass


@pytest.mark.parametrize(
    ("policy", "value"),
    [
        (exact.optimal_policy(), -0.0466),
        (exact.mimic_the_dealer, -0.0793),
        (exact.hit_below_12, -0.1058),
        (exact.always_stand, -0.1864),
        (exact.uniformly_random, -0.3959),
    ],
    ids=["optimal", "mimic-the-dealer", "hit-below-12", "always-stand", "random"],
)
def test_exact_values_are_the_known_ones(policy: exact.Policy, value: float) -> None:
    assert round(exact.expected_return(policy), 4) == value


def test_optimal_policy_is_basic_strategy_without_doubling_and_splitting() -> None:
    optimal = exact.optimal_policy()
    hard = {up: min(s for s in range(4, 22) if not optimal(s, False, up)) for up in range(1, 11)}
    soft = {up: min(s for s in range(12, 22) if not optimal(s, True, up)) for up in range(1, 11)}
    assert hard == {1: 17, 2: 13, 3: 13, 4: 12, 5: 12, 6: 12, 7: 17, 8: 17, 9: 17, 10: 17}
    # Against an ace soft 18 hits, where basic strategy stands: here the dealer's natural beats 18 too. Sutton and
    # Barto remark on this notch in their figure 5.2.
    assert soft == {1: 19, 2: 18, 3: 18, 4: 18, 5: 18, 6: 18, 7: 18, 8: 18, 9: 19, 10: 19}


def test_no_single_change_improves_the_optimal_policy() -> None:
    optimal = exact.optimal_policy()
    best = exact.expected_return(optimal)
    for changed in list(exact.states())[::7]:

        def other(total: int, ace: bool, up: int, changed: tuple[int, bool, int] = changed) -> float:
            chance = optimal(total, ace, up)
            return 1.0 - chance if (total, ace, up) == changed else chance

        assert exact.expected_return(other) <= best + 1e-12


def test_a_policy_that_returns_no_probability_is_refused() -> None:
    with pytest.raises(ValueError, match=r"probability to hit; at .* it returned 2"):
        exact.expected_return(lambda total, ace, up: 2.0)


def test_dealer_outcomes_are_distributions_and_bust_most_with_a_five_or_six() -> None:
    bust = {up: exact.dealer_outcomes(up)[0, False] for up in range(1, 11)}
    for up in range(1, 11):
        assert math.isclose(sum(exact.dealer_outcomes(up).values()), 1.0)
    assert sorted(bust, key=lambda up: -bust[up])[:2] == [6, 5]
    assert round(bust[6], 3) == 0.423


@pytest.mark.parametrize(
    ("policy", "rules"),
    [
        (exact.optimal_policy(), {}),
        (exact.always_stand, {"natural": True}),
        (exact.uniformly_random, {}),
    ],
    ids=["optimal", "always-stand with natural", "random"],
)
def test_the_average_over_many_hands_is_the_exact_value(
    play_hand: Callable[..., list[BlackjackObservation]], policy: exact.Policy, rules: dict[str, bool]
) -> None:
    environment, coin = BlackjackEnvironment(**rules), random.Random(17)

    def choose(table: BlackjackObservation) -> str:
        chance = policy(table.player_sum, table.usable_ace, table.dealer_card)
        return "hit" if coin.random() < chance else "stand"

    rewards = [play_hand(environment, choose, seed=seed)[-1].reward or 0.0 for seed in range(HANDS)]
    mean = math.fsum(rewards) / HANDS
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / (HANDS - 1))
    assert abs(mean - exact.expected_return(policy, **rules)) < STANDARD_ERRORS * deviation / math.sqrt(HANDS)


def test_first_cards_and_dealer_hands_are_distributed_exactly() -> None:
    environment, stand = BlackjackEnvironment(), BlackjackAction(move="stand")
    first, dealers, ups = Counter[int](), Counter[tuple[int, int]](), Counter[int]()
    rewards = Counter[float]()
    for seed in range(HANDS):
        table = environment.reset(seed=seed)
        first[table.player_cards[0]] += 1
        ups[table.dealer_card] += 1
        table = environment.step(stand)
        total = sum(table.dealer_cards) + (10 if 1 in table.dealer_cards and sum(table.dealer_cards) <= 11 else 0)
        dealers[table.dealer_card, total if total <= 21 else 0] += 1
        rewards[table.reward or 0.0] += 1
    for card, probability in exact.CARD_PROBABILITIES.items():
        assert_count(first[card], HANDS, probability)
        assert_count(ups[card], HANDS, probability)
        outcomes = Counter[int]()
        for (total, _), share in exact.dealer_outcomes(card).items():
            outcomes[total] += share  # pyright: ignore[reportArgumentType]
        for total, share in outcomes.items():
            assert_count(dealers[card, total], ups[card], share)
    expected = exact.expected_return(exact.always_stand)
    assert abs((rewards[1.0] - rewards[-1.0]) / HANDS - expected) < STANDARD_ERRORS / math.sqrt(HANDS)


def assert_count(count: int, trials: int, probability: float) -> None:
    # 80 comparisons: 4 standard errors leave a chance of 0.5% that any of them fails by luck.
    assert abs(count - trials * probability) < 4 * math.sqrt(trials * probability * (1 - probability))
