"""What was sampled in which context, as fingerprints taken at that moment; and how many of them a row still keeps.

The fingerprints come from the other side of the seam: of the list that the policy was given, as it is once the policy
is done with it, and of the completion as the policy gave it. So they tell when a policy samples in another context
than the dialogue's (it cuts or changes the prompt in place), and when a row is changed after it was played.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

_SIZE = 16


@dataclass(frozen=True)
class SampledTurn:
    """One message of the model, as it was sampled.

    Attributes:
        context_tokens: Tokens of the context.
        tokens: Tokens of the message.
        context_digest: Fingerprint of the context's ids.
        digest: Fingerprint of the message's ids.
        logprobs_digest: Fingerprint of its log-probs; None where there were none.
    """

    context_tokens: int
    tokens: int
    context_digest: bytes
    digest: bytes
    logprobs_digest: bytes | None


def sampled_turn(context: Sequence[int], ids: Sequence[int], logprobs: Sequence[float] | None) -> SampledTurn:
    """Take the fingerprints of a message.

    Args:
        context: The list that the policy was given.
        ids: What it sampled.
        logprobs: The log-probs of these.
    """
    probabilities = None if logprobs is None else _digest("d", logprobs)
    return SampledTurn(len(context), len(ids), _digest("q", context), _digest("q", ids), probabilities)


def count_drift(
    turns: Sequence[SampledTurn],
    prompt_ids: Sequence[int],
    completion_ids: Sequence[int],
    mask: Sequence[int],
    logprobs: Sequence[float] | None,
) -> int:
    """How many messages do not stand in a row as they were sampled, in the context in which they were.

    One more is counted where the mask marks other ids than those that were sampled.

    Args:
        turns: The fingerprints, in the order of the messages.
        prompt_ids: Of the row.
        completion_ids: Of the row.
        mask: Of the row.
        logprobs: Of the row.
    """
    drifted, trained, done = 0, 0, 0
    ids = [*prompt_ids, *completion_ids]
    so_far = blake2b(digest_size=_SIZE)
    for turn in turns:
        start, end = turn.context_tokens, turn.context_tokens + turn.tokens
        # Contexts only grow: each begins with the one before, and so its fingerprint goes on from there.
        so_far.update(_bytes("q", ids[done:start]))
        done = max(done, start)
        at = start - len(prompt_ids), end - len(prompt_ids)
        kept = (
            at[0] >= 0
            and done == start
            and so_far.digest() == turn.context_digest
            and _digest("q", ids[start:end]) == turn.digest
            and list(mask[at[0] : at[1]]) == [1] * turn.tokens
            and (
                logprobs is None
                or turn.logprobs_digest is None
                or _digest("d", logprobs[at[0] : at[1]]) == turn.logprobs_digest
            )
        )
        drifted += not kept
        trained += turn.tokens
    return drifted + (sum(mask) != trained)


def _digest(kind: str, values: Sequence[Any]) -> bytes:
    return blake2b(_bytes(kind, values), digest_size=_SIZE).digest()


def _bytes(kind: str, values: Sequence[Any]) -> bytes:
    try:
        return array(kind, values).tobytes()
    except (TypeError, OverflowError):
        return repr(values).encode()
