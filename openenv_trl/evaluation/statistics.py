"""Means with their intervals, and what is assumed for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class MeanInterval:
    """A mean and its 95% confidence interval.

    Attributes:
        mean: The sample mean.
        half_width: Half the interval's width; infinite for fewer than two values.
        count: How many values there were.
    """

    mean: float
    half_width: float
    count: int

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.half_width

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.half_width:.4f}"


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """The mean of independent values and its 95% interval.

    The interval is the normal one, from the sample's standard deviation: it assumes independent values of finite
    variance, and enough of them (hundreds) for the central limit theorem. Episodes with seeds of their own are
    independent; several generations of one task are not.

    Args:
        values: One value an episode. At least one.
    """
    count = len(values)
    if count == 0:
        raise ValueError("mean_interval needs at least one value.")
    mean = math.fsum(values) / count
    if count == 1:
        return MeanInterval(mean, math.inf, 1)
    variance = math.fsum((v - mean) ** 2 for v in values) / (count - 1)
    return MeanInterval(mean, _NORMAL_95 * math.sqrt(variance / count), count)
