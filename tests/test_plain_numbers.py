"""A reward may be a number of any library; what is none is never taken for one."""

from __future__ import annotations

import datetime
import fractions
import math
from decimal import Decimal
from typing import Any

import numpy
import pytest
import torch

from openenv_trl.plain_numbers import plain_number
from openenv_trl.types import Observation
from openenv_trl.wire.observations import has_finite_reward, serialize_observation


class Loose(Observation):
    reward: Any = None


NUMBERS: dict[str, tuple[Any, bool | int | float]] = {
    "bool": (True, True),
    "int": (3, 3),
    "big int": (10**400, 10**400),
    "float16": (numpy.float16(0.5), 0.5),
    "float32": (numpy.float32(0.1), 0.10000000149011612),
    "float64": (numpy.float64(0.1), 0.1),
    "longdouble": (numpy.longdouble(0.5), 0.5),
    "numpy bool": (numpy.bool_(True), True),
    "numpy int": (numpy.int64(-3), -3),
    "numpy array without axes": (numpy.array(0.5), 0.5),
    "torch": (torch.tensor(0.5), 0.5),
    "torch with a gradient": (torch.tensor(0.5, requires_grad=True), 0.5),
    "torch bfloat16": (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
    "torch bool": (torch.tensor(True), True),
    "torch int": (torch.tensor(2), 2),
    "decimal": (Decimal("0.5"), 0.5),
    "fraction": (fractions.Fraction(1, 2), 0.5),
    "beyond floats": (-fractions.Fraction(10**400), -math.inf),
}


@pytest.mark.parametrize(("value", "plain"), NUMBERS.values(), ids=NUMBERS)
def test_a_single_number_of_any_library_is_pythons_own(value: Any, plain: bool | int | float) -> None:
    found = plain_number(value)
    assert (type(found), found) == (type(plain), plain)


@pytest.mark.parametrize("value", [numpy.float32("nan"), torch.tensor(math.nan), Decimal("nan"), math.nan])
def test_what_is_not_a_number_by_its_value_stays_so_and_is_told(value: Any) -> None:
    found = plain_number(value)
    assert isinstance(found, float)
    assert math.isnan(found)
    observation = Loose(reward=value)
    assert not has_finite_reward(observation)
    assert serialize_observation(observation)["metadata"] == {"reward_not_finite": "nan"}


@pytest.mark.parametrize(
    "value",
    [
        *(None, "0.5", b"1", "", [0.5], (1,), {}, object(), 1j, numpy.complex64(1), torch.tensor(1j)),
        *(numpy.array([0.5]), torch.tensor([0.5]), numpy.array("0.5"), numpy.str_("1"), numpy.array(None)),
        *(datetime.timedelta(1), numpy.timedelta64(5, "s"), numpy.datetime64("2024-05-01"), float, numpy.float32),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_single_number_is_none(value: Any) -> None:
    assert plain_number(value) is None
