"""The table as a picture: HTML for the debug page, made of the observation's numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_STYLE = (
    "<style>.hand{display:flex;align-items:center;gap:8px;margin:0 0 10px}"
    ".hand b{width:8.5em;font-weight:400;opacity:.75}"
    ".card{box-sizing:border-box;width:46px;height:64px;border-radius:7px;background:#fff;color:#1b1f27;display:grid;"
    "place-items:center;font:600 20px/1 system-ui,sans-serif;border:1px solid #8d95a3}"
    ".back{background:repeating-linear-gradient(45deg,#4f46e5 0 5px,#6f67f0 5px 10px)}</style>"
)
_BACK = '<span class="card back" role="img" aria-label="a card face down"></span>'


def table_of(observation: dict[str, Any]) -> str:
    """Return the two hands as HTML.

    Args:
        observation: A `BlackjackObservation`'s fields.
    """
    dealer: list[int] = observation["dealer_cards"]
    player = f"You: {observation['player_sum']}{', usable ace' if observation['usable_ace'] else ''}"
    hidden = _BACK if len(dealer) == 1 else ""
    return f"{_STYLE}{_hand('Dealer', dealer, hidden)}{_hand(player, observation['player_cards'])}"


def _hand(name: str, cards: Sequence[int], more: str = "") -> str:
    shown = "".join(f'<span class="card">{"A" if card == 1 else card}</span>' for card in cards)
    return f'<div class="hand"><b>{name}</b>{shown}{more}</div>'
