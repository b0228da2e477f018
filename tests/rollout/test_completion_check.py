"""Promises about what a policy gives: it is what can be trained on, or a PolicyError says what is wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from openenv_trl.errors import PolicyError
from openenv_trl.rollout import Completion, FailedCompletion
from openenv_trl.rollout.completion_check import checked_completions


def completion(ids: Any = (1, 2), logprobs: Any = (-0.5, 0.0)) -> Any:
    return Completion(ids, logprobs, finished=True)


def test_arrays_become_lists_and_failures_stay() -> None:
    failed = FailedCompletion("busy")
    given = [completion(np.array([1, 2]), np.array([-0.5, 0.0], dtype=np.float32)), failed, completion((3, 4), None)]
    first, second, third = checked_completions(given, 3)
    assert isinstance(first, Completion)
    assert (first.ids, first.logprobs) == ([1, 2], [-0.5, 0.0])
    assert [type(each) for each in first.ids] == [int, int]
    assert second is failed
    assert isinstance(third, Completion)
    assert (third.ids, third.logprobs) == ([3, 4], None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "NoneType in place of a list"),
        ((each for each in ()), "generator in place of a list"),
        ({"ids": [1]}, "dict in place of a list"),
        ([], "0 completions for 1 prompts"),
        ([None], "in place of a Completion"),
        (["text"], "in place of a Completion"),
        ([FailedCompletion], "in place of a Completion"),
        ([completion(None)], "NoneType .None. where a list"),
        ([completion("12")], "where a list of numbers"),
        ([completion([1.0, 2.0])], "no whole numbers"),
        ([completion(["1", "2"])], "no whole numbers"),
        ([completion([-1, 2])], "no token ids"),
        ([completion([True, 2])], "no token ids"),
        ([completion(logprobs=[math.nan, 0.0])], "a log-prob of nan"),
        ([completion(logprobs=[-math.inf, 0.0])], "a log-prob of -inf"),
        ([completion(logprobs=[3.0, 0.0])], "a log-prob of 3"),
        ([completion(logprobs=[None, 0.0])], "no numbers"),
        ([completion(logprobs=0.5)], "where a list of numbers"),
    ],
)
def test_what_cannot_be_trained_on_is_named(given: Any, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        checked_completions(given, 1)
