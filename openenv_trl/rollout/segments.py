"""A dialogue whose model is not shown its earlier thoughts, since the chat template drops them.

The context of a turn is then no longer the beginning of the next one's, so one episode is several rows of training:
each a context and the message that was sampled in it. What stays of a message is still exactly the ids that were
sampled; only the environment's parts and the headers are encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from openenv_trl.rollout.sampling_record import SampledTurn, count_drift


@dataclass
class Segment:
    """Messages of the model that were sampled in contexts that each begin with the one before.

    Attributes:
        prompt_ids: What came before the first of them.
        completion_ids: All that came after.
        mask: 1 for sampled ids, 0 for others.
        logprobs: Of the sampled ids; 0.0 for others. None if a completion came without.
        versions: Which weights sampled what: see `Trajectory`.
        sampled: Fingerprints of the messages.
    """

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list[int])
    mask: list[int] = field(default_factory=list[int])
    logprobs: list[float] | None = field(default_factory=list[float])
    versions: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    sampled: list[SampledTurn] = field(default_factory=list[SampledTurn], compare=False)

    @property
    def drift(self) -> int:
        """How many messages do not stand here as they were sampled: see `Trajectory.drift`."""
        return count_drift(self.sampled, self.prompt_ids, self.completion_ids, self.mask, self.logprobs)


@dataclass
class ThoughtlessHistory:
    """The context of the next message, made anew at each turn of parts that are kept.

    Args:
        header: How the next message is begun.
        earlier_header: How earlier messages are begun.
        encode: Text to ids.
        text: The rendered prompt.
    """

    header: str
    earlier_header: str
    encode: Callable[[str], Sequence[int]]
    text: str
    _earlier: list[int] = field(default_factory=list[int])

    def spoken(self, said: Sequence[int], tail: str) -> list[int]:
        """The context after one more message.

        Args:
            said: What stays of the sampled ids: without thoughts, and without the end.
            tail: What the template writes after the message, its end and the next header included.
        """
        begun = self.text.removesuffix(self.header) + self.earlier_header
        self._earlier += [*self.encode(begun), *said]
        self.text = tail
        return self._earlier + list(self.encode(tail))
