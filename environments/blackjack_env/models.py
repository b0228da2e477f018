"""What the player does, what the player sees, and what the trainer sees of a hand of blackjack.

The observation holds all that a player at the table knows, once as fields and once as a sentence
(``message``). The state is the trainer's: it also names the seeds, so that any hand can be played again.
"""

from __future__ import annotations

from typing import Literal

from openenv_trl.types import Action, Observation, State


class BlackjackAction(Action):
    """One decision of the player."""

    move: Literal["hit", "stand"]
    """"hit" draws one more card; "stand" ends the player's turn and the dealer plays."""


class BlackjackObservation(Observation):
    """The table as the player sees it. Cards are 1 (an ace) to 10 (a ten, jack, queen or king)."""

    message: str
    """The table in one or two plain sentences: what a language model reads."""
    player_cards: list[int]
    """The player's cards, in the order they were dealt."""
    player_sum: int
    """Sum of the player's cards, with one ace counted as 11 where that does not exceed 21."""
    usable_ace: bool
    """Whether an ace is counted as 11 in `player_sum`."""
    dealer_card: int
    """The dealer's card that lies face up."""
    dealer_cards: list[int]
    """All cards of the dealer that are known: one during the hand, all of them once the dealer has played."""


class BlackjackState(State):
    """Where the hand stands, and what it takes to play it again."""

    seed: int | None = None
    """The seed of the hand: as given to ``reset``, or drawn from the operating system's entropy."""
    task_seed: int | None = None
    """The seed of the first three cards, where one was given."""
    natural: bool = False
    """Whether a natural that wins pays 1.5 in this hand."""
    sab: bool = False
    """Whether a natural wins against every dealer's hand but a natural."""
