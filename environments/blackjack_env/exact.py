"""Blackjack's exact values: what a policy earns per hand in the long run, by dynamic programming.

A policy is a function of what the player sees (their sum, whether an ace counts as 11 in it, the dealer's
card) that returns the probability to hit. Nothing here is sampled, so an average over played hands can be
held against it. The server does not import this module.

Under the default rules: optimal -0.0466, mimic the dealer -0.0793, hit below 12 -0.1058, always stand
-0.1864, uniformly random -0.3959.

Source: the recursion of R. Sutton and A. Barto, "Reinforcement Learning: An Introduction", 2nd edition,
section 4.1, on example 5.1; an infinite deck makes every draw independent of the cards that lie on the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

Policy = Callable[[int, bool, int], float]
"""``(player_sum, usable_ace, dealer_card) -> probability to hit``."""

CARD_PROBABILITIES = {card: (4 if card == 10 else 1) / 13 for card in range(1, 11)}
"""How often each card is drawn: tens, jacks, queens and kings all count 10."""


def always_stand(player_sum: int, usable_ace: bool, dealer_card: int) -> float:
    """Keep the two cards that were dealt."""
    return 0.0


def uniformly_random(player_sum: int, usable_ace: bool, dealer_card: int) -> float:
    """Toss a coin at every decision."""
    return 0.5


def hit_below_12(player_sum: int, usable_ace: bool, dealer_card: int) -> float:
    """Hit only where no card can bust the hand."""
    return 1.0 if player_sum < 12 else 0.0


def mimic_the_dealer(player_sum: int, usable_ace: bool, dealer_card: int) -> float:
    """Hit below 17 and stand on every 17, as the dealer does."""
    return 1.0 if player_sum < 17 else 0.0


def expected_return(policy: Policy, *, natural: bool = False, sab: bool = False) -> float:
    """The exact mean reward per hand of a policy.

    Args:
        policy: The probability to hit for each ``(player_sum, usable_ace, dealer_card)``.
        natural: Whether a natural that wins pays 1.5; without effect where ``sab`` is true.
        sab: Whether a natural wins against every dealer's hand but a natural.

    Returns:
        The mean over all deals, between -1 and 1.5.

    Raises:
        ValueError: The policy returned something that is not a probability.

    Example:
        >>> round(expected_return(mimic_the_dealer), 4)
        -0.0793
    """

    def mixed(state: tuple[int, bool, int], stand: float, hit: float) -> float:
        chance = policy(*state)
        if not 0.0 <= chance <= 1.0:
            raise ValueError(f"The policy must return a probability to hit; at {state} it returned {chance!r}.")
        return chance * hit + (1.0 - chance) * stand

    return _value_of_the_deal(mixed, natural, sab)


def optimal_policy() -> Policy:
    """The policy with the largest expected return; where both moves are worth the same it stands.

    It is the same with and without ``natural`` and ``sab``, which concern hands that nobody would hit.
    """
    hits: dict[tuple[int, bool, int], bool] = {}

    def better(state: tuple[int, bool, int], stand: float, hit: float) -> float:
        hits[state] = hit > stand
        return max(hit, stand)

    _value_of_the_deal(better, False, False)
    return lambda player_sum, usable_ace, dealer_card: float(hits[player_sum, usable_ace, dealer_card])


def states() -> Iterator[tuple[int, bool, int]]:
    """All situations in which the player decides: ``(player_sum, usable_ace, dealer_card)``."""
    for dealer_card in CARD_PROBABILITIES:
        yield from ((total, False, dealer_card) for total in range(4, 22))
        yield from ((total, True, dealer_card) for total in range(12, 22))


def dealer_outcomes(dealer_card: int) -> dict[tuple[int, bool], float]:
    """How the dealer ends who shows that card: ``(sum, is a natural) -> probability``; a bust has sum 0."""
    return _dealer_outcomes(dealer_card, dealer_card == 1, 1)


@cache
def _dealer_outcomes(hard_sum: int, ace: bool, cards: int) -> dict[tuple[int, bool], float]:
    total, _ = _count(hard_sum, ace)
    if total > 21:
        return {(0, False): 1.0}
    if total >= 17:
        return {(total, cards == 2 and total == 21): 1.0}
    outcomes: dict[tuple[int, bool], float] = {}
    for card, probability in CARD_PROBABILITIES.items():
        for outcome, share in _dealer_outcomes(hard_sum + card, ace or card == 1, min(cards + 1, 3)).items():
            outcomes[outcome] = outcomes.get(outcome, 0.0) + probability * share
    return outcomes


def _count(hard_sum: int, ace: bool) -> tuple[int, bool]:
    """The best sum of cards that add up to ``hard_sum`` with aces as 1, and whether an ace became 11."""
    return (hard_sum + 10, True) if ace and hard_sum <= 11 else (hard_sum, False)


def _stand_value(total: int, dealer_card: int, player_natural: bool, natural: bool, sab: bool) -> float:
    value = 0.0
    for (dealer, dealer_natural), probability in dealer_outcomes(dealer_card).items():
        reward = float((total > dealer) - (total < dealer))
        if player_natural and sab and not dealer_natural:
            reward = 1.0
        elif player_natural and natural and not sab and reward == 1.0:
            reward = 1.5
        value += probability * reward
    return value


def _value_of_the_deal(
    choose: Callable[[tuple[int, bool, int], float, float], float], natural: bool, sab: bool
) -> float:
    """The mean over all deals, where ``choose(state, value of standing, of hitting)`` values a state."""

    @cache
    def value(hard_sum: int, ace: bool, dealer_card: int, player_natural: bool) -> float:
        total, usable_ace = _count(hard_sum, ace)
        if total > 21:
            return -1.0
        hit = sum(
            probability * value(hard_sum + card, ace or card == 1, dealer_card, False)
            for card, probability in CARD_PROBABILITIES.items()
        )
        stand = _stand_value(total, dealer_card, player_natural, natural, sab)
        return choose((total, usable_ace, dealer_card), stand, hit)

    deals = list(CARD_PROBABILITIES.items())
    return sum(
        p_first * p_second * p_up * value(first + second, 1 in (first, second), up, {first, second} == {1, 10})
        for first, p_first in deals
        for second, p_second in deals
        for up, p_up in deals
    )
