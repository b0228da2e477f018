"""Parts of goals about what is said: to the user at the end, and to guests by mail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from calendar_env.tasks.snapshot import Difference


@dataclass(frozen=True)
class Answer:
    """What the agent's last message shall say.

    Attributes:
        name: What it is about.
        read: Takes the answer out of the message; None where it has none, or several.
        value: The right answer.
    """

    name: str
    read: Callable[[str], Any]
    value: Any

    def reached(self, difference: Difference, message: str) -> float:
        """Whether it says that."""
        return float(self.read(message) == self.value)


@dataclass(frozen=True)
class Told:
    """Words that the agent's last message shall hold, once it has done something, and others that it shall not.

    Attributes:
        name: What it is about.
        words: The words.
        without: Words of which none may be there.
    """

    name: str
    words: Sequence[str]
    without: Sequence[str] = ()

    def reached(self, difference: Difference, message: str) -> float:
        """The share of the words that it holds; 0 where nothing was done, or a wrong word is there."""
        said = message.casefold()
        if not _something_done(difference) or any(word.casefold() in said for word in self.without):
            return 0.0
        return sum(word.casefold() in said for word in self.words) / len(self.words)


@dataclass(frozen=True)
class Mailed:
    """Those who shall be told of a change."""

    name: str
    recipients: Sequence[str]

    def reached(self, difference: Difference, message: str) -> float:
        """The share of them who were written to; 0 where nothing was done."""
        if not _something_done(difference):
            return 0.0
        told = {recipient for _, _, recipient in difference.sent}
        return len(told & set(self.recipients)) / len(self.recipients)


def _something_done(difference: Difference) -> bool:
    before, after = difference.before, difference.after
    return (before.occurrences, before.rows) != (after.occurrences, after.rows)
