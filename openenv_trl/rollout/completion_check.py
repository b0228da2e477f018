"""What a policy gave, checked before it enters a dialogue: policies are anyone's code, and this is trained on."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from openenv_trl.errors import PolicyError
from openenv_trl.rollout.policy import Completion, FailedCompletion

_HIGHEST_LOGPROB = 0.01
"""Of a probability of 1, with what a sampler's arithmetic adds."""


def checked_completions(given: Any, count: int) -> list[Completion | FailedCompletion]:
    """Completions as lists of int and float, also where they were arrays or tensors.

    Args:
        given: What the policy returned.
        count: How many prompts it was given.

    Raises:
        PolicyError: It is not one `Completion` or `FailedCompletion` for each prompt, or one of them holds what cannot
            be: ids that are no whole numbers from 0, or log-probs that are not finite, or above 0.
    """
    if not isinstance(given, (list, tuple)):
        raise _wrong(f"{type(given).__name__} in place of a list of completions")
    completions = cast("Sequence[Any]", given)
    if len(completions) != count:
        raise _wrong(f"{len(completions)} completions for {count} prompts; it must give one for each, in their order")
    return [_checked(completion) for completion in completions]


def _checked(completion: Any) -> Completion | FailedCompletion:
    if isinstance(completion, FailedCompletion):
        return completion
    if not isinstance(completion, Completion):
        raise _wrong(f"{completion!r:.80} in place of a Completion or FailedCompletion")
    ids, logprobs = _plain(completion.ids), completion.logprobs
    if any(type(each) is not int for each in ids):
        try:
            ids = [operator.index(each) for each in ids if not isinstance(each, bool)]
        except TypeError as error:
            raise _wrong(f"ids that are no whole numbers: {completion.ids!r:.80}") from error
    if len(ids) != len(completion.ids) or any(each < 0 for each in ids):
        raise _wrong(f"ids that are no token ids: {completion.ids!r:.80}")
    return replace(completion, ids=ids, logprobs=None if logprobs is None else _numbers(logprobs))


def _numbers(logprobs: Any) -> list[float]:
    try:
        numbers = [float(each) for each in _plain(logprobs)]
    except (TypeError, ValueError) as error:
        raise _wrong(f"log-probs that are no numbers: {logprobs!r:.80}") from error
    wrong = [number for number in numbers if not math.isfinite(number) or number > _HIGHEST_LOGPROB]
    if wrong:
        raise _wrong(f"a log-prob of {wrong[0]}; where it has none for a completion, that is logprobs=None")
    return numbers


def _plain(values: Any) -> list[Any]:
    """A list, also of an array or a tensor."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, (list, tuple)):
        raise _wrong(f"{type(values).__name__} ({values!r:.80}) where a list of numbers must be")
    return list(cast("Sequence[Any]", values))


def _wrong(what: str) -> PolicyError:
    return PolicyError(f"The policy gave {what}.", phase="generate")
