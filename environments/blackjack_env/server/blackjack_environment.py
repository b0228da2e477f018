"""Blackjack by the rules of Sutton and Barto, as in Gymnasium's ``Blackjack-v1``.

The deck is infinite, the dealer draws to 17 and stands on every 17, and the only moves are hit and stand. All
that is random in a hand comes from its seeds, and a hand costs a few microseconds: the hooks run on the
server's event loop.

Source: R. Sutton and A. Barto, "Reinforcement Learning: An Introduction", 2nd edition, example 5.1;
Gymnasium, ``gymnasium/envs/toy_text/blackjack.py``, for the rules of ``natural`` and ``sab``.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

# By the package's own name, not relative: this module is also loaded as ``server.blackjack_environment``,
# where an app is named ``server.app:app`` and run from this folder.
from blackjack_env.models import BlackjackAction, BlackjackObservation, BlackjackState
from blackjack_env.server.cards import table_of
from blackjack_env.server.shoe import Shoe
from openenv_trl.environment import Environment, tool
from openenv_trl.errors import ConfigurationError, SessionStateError
from openenv_trl.types import EnvironmentMetadata

_TASK_CARDS = 3  # the player's two and the dealer's up card
_DEALER_STANDS_AT = 17


def hand_sum(cards: list[int]) -> tuple[int, bool]:
    """The sum of a hand, and whether it counts an ace as 11."""
    total = sum(cards)
    return (total + 10, True) if total <= 11 and 1 in cards else (total, False)


def is_natural(cards: list[int]) -> bool:
    """Whether a hand is an ace and a ten and nothing more."""
    return len(cards) == 2 and 1 in cards and 10 in cards


def _require_integer(name: str, value: object) -> None:
    if value is not None and not isinstance(value, int):
        raise ConfigurationError(f"{name} must be an integer or None, not {value!r}.")


class BlackjackEnvironment(Environment[BlackjackAction, BlackjackObservation, BlackjackState]):
    """One hand of blackjack an episode.

    The reward is +1 for a win, -1 for a loss and 0 for a draw; a hit that ends nothing brings 0.

    Args:
        natural: Whether a player's natural (ace and ten) that wins pays 1.5. Without effect where ``sab`` is
            true.
        sab: Whether a player's natural wins against every dealer's hand but a natural, also against another
            21.

    Example:
        >>> env = BlackjackEnvironment()
        >>> env.reset(seed=1).message
        'Your hand: 9, 10. Sum 19, no usable ace. The dealer shows 2.'
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True

    def __init__(self, natural: bool = False, sab: bool = False) -> None:
        self._default_natural = natural
        self._default_sab = sab
        self._natural = natural
        self._sab = sab
        self._episode_id: str | None = None
        self._seed: int | None = None
        self._task_seed: int | None = None
        self._shoe = Shoe(0)
        self._step_count = 0
        self._dealt = 0
        self._player: list[int] = []
        self._dealer: list[int] = []
        self._over = False

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task_seed: int | None = None,
        natural: bool | None = None,
        sab: bool | None = None,
        **kwargs: Any,
    ) -> BlackjackObservation:
        """Deal a hand.

        Args:
            seed: Decides every card of the hand; drawn from the operating system's entropy if None.
            episode_id: A name for the hand; made up if None.
            task_seed: Where given, decides the first three cards (the player's two and the dealer's up card),
                and ``seed`` decides the rest: hands with one ``task_seed`` share the task and not the later
                luck.
            natural: Whether a natural that wins pays 1.5 in this hand; as constructed if None.
            sab: Whether a natural wins against every hand but a natural; as constructed if None.
            **kwargs: Not accepted; any other name is refused.

        Raises:
            ConfigurationError: An unknown argument, or a seed that is no integer.
        """
        if kwargs:
            raise ConfigurationError(
                f"Blackjack's reset does not know {', '.join(map(repr, sorted(kwargs)))}. "
                "It takes seed, episode_id, task_seed, natural and sab."
            )
        _require_integer("seed", seed)
        _require_integer("task_seed", task_seed)
        # 48 bits: every JSON reader holds them exactly.
        self._seed = int.from_bytes(os.urandom(6), "big") if seed is None else seed
        self._task_seed = task_seed
        self._episode_id = os.urandom(16).hex() if episode_id is None else episode_id
        self._natural = self._default_natural if natural is None else natural
        self._sab = self._default_sab if sab is None else sab
        self._shoe = Shoe(self._seed)
        task = self._shoe if task_seed is None else Shoe(task_seed)
        self._player = [task.card(0), task.card(1)]
        self._dealer = [task.card(2), self._shoe.card(_TASK_CARDS)]
        self._dealt = _TASK_CARDS + 1
        self._step_count = 0
        self._over = False
        return self._table(reward=None)

    def step(self, action: BlackjackAction, timeout_s: float | None = None, **kwargs: Any) -> BlackjackObservation:
        """Play the action's move.

        Raises:
            SessionStateError: No hand is being played: call ``reset`` first. Nothing was drawn.
        """
        return self._play(action.move)

    @property
    def state(self) -> BlackjackState:
        """The hand's name, its number of steps, its seeds and its rules, and no card."""
        return BlackjackState(
            episode_id=self._episode_id,
            step_count=self._step_count,
            seed=self._seed,
            task_seed=self._task_seed,
            natural=self._natural,
            sab=self._sab,
        )

    # Asynchronous like the hooks: a server calls them on its event loop, without a thread.
    @tool
    async def hit(self) -> BlackjackObservation:
        """Draw one more card. Above 21 you are bust and lose."""
        return self._play("hit")

    @tool
    async def stand(self) -> BlackjackObservation:
        """Draw no more cards. The dealer then plays, and the higher sum wins."""
        return self._play("stand")

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> BlackjackObservation:
        """Like `reset`: it takes microseconds and never waits."""
        return self.reset(seed=seed, episode_id=episode_id, **kwargs)

    async def step_async(
        self, action: BlackjackAction, timeout_s: float | None = None, **kwargs: Any
    ) -> BlackjackObservation:
        """Like `step`: it takes microseconds and never waits."""
        return self._play(action.move)

    def render_web(self, observation: dict[str, Any]) -> str | None:
        """The two hands as cards: what the debug page shows."""
        return table_of(observation)

    def get_metadata(self) -> EnvironmentMetadata:
        """Name, version and a description of the rules in one sentence."""
        return EnvironmentMetadata(
            name="blackjack_env",
            description="Blackjack with an infinite deck: hit or stand against a dealer who stands on 17.",
            version="0.1.0",
        )

    def _play(self, move: str) -> BlackjackObservation:
        if self._over:
            raise SessionStateError("This hand is over. Call reset to deal a new one.", phase="step")
        if not self._player:
            raise SessionStateError("No hand was dealt yet. Call reset before the first step.", phase="step")
        self._step_count += 1
        if move == "hit":
            self._player.append(self._draw())
            if sum(self._player) > 21:
                self._over = True
            return self._table(reward=-1.0 if self._over else 0.0)
        while hand_sum(self._dealer)[0] < _DEALER_STANDS_AT:
            self._dealer.append(self._draw())
        self._over = True
        return self._table(reward=self._payoff())

    def _draw(self) -> int:
        card = self._shoe.card(self._dealt)
        self._dealt += 1
        return card

    def _payoff(self) -> float:
        player = hand_sum(self._player)[0]
        dealer = hand_sum(self._dealer)[0]
        if self._sab and is_natural(self._player) and not is_natural(self._dealer):
            return 1.0
        if dealer > 21 or player > dealer:
            return 1.5 if self._natural and is_natural(self._player) else 1.0
        return 0.0 if player == dealer else -1.0

    def _table(self, reward: float | None) -> BlackjackObservation:
        total, usable_ace = hand_sum(self._player)
        known = self._dealer if self._over and total <= 21 else self._dealer[:1]
        return BlackjackObservation(
            message=self._sentence(total, usable_ace, reward),
            player_cards=self._player,
            player_sum=total,
            usable_ace=usable_ace,
            dealer_card=self._dealer[0],
            dealer_cards=known,
            reward=reward,
            done=self._over,
        )

    def _sentence(self, total: int, usable_ace: bool, reward: float | None) -> str:
        if not self._over:
            ace = "usable ace" if usable_ace else "no usable ace"
            cards = ", ".join(map(str, self._player))
            return f"Your hand: {cards}. Sum {total}, {ace}. The dealer shows {self._dealer[0]}."
        if total > 21:
            return f"You drew {self._player[-1]} and have {total}: bust. You lose."
        dealer, _ = hand_sum(self._dealer)
        bust = ", bust" if dealer > 21 else ""
        outcome = "You win." if reward and reward > 0 else "You lose." if reward else "It is a draw."
        return f"The dealer has {', '.join(map(str, self._dealer))}: {dealer}{bust}. {outcome}"
