"""The infinite deck: card number ``i`` of a hand is a pure function of the seed and of ``i``.

So a hand is played again from its seed alone, whatever was drawn before; and two hands with equal seeds and
different actions draw from one and the same row of cards. A generator with a state, such as `random.Random`,
would take longer to seed than a whole hand takes to play.

Source: SplitMix64, G. Steele, D. Lea and C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA
2014.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Shoe:
    """The row of cards that a seed stands for.

    Args:
        seed: Any integer, taken modulo 2**64.
    """

    __slots__ = ("_start",)

    def __init__(self, seed: int) -> None:
        # Mixed before use: with the bare seed, seeds that differ by the increment below would share their
        # cards.
        self._start = _mix((seed + _GOLDEN_GAMMA) & _MASK)

    def card(self, index: int) -> int:
        """Card number ``index`` from 0: 1 (ace) to 9 with probability 1/13 each, 10 with probability 4/13."""
        rank = _mix((self._start + (index + 1) * _GOLDEN_GAMMA) & _MASK) % 13 + 1
        return rank if rank < 10 else 10
