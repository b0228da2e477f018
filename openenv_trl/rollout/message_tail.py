"""What a chat template writes after a message of the model's: its end, the answers, the header of the next one.

It is found by rendering a short stand-in conversation, whose message of the model's carries a marker, with the answers
and without. What follows the marker without answers is the rest of the message; with them, the same rest (some
templates change its last token) and then what is looked for. A template may write earlier messages otherwise than
their last (dropping thoughts): that changes nothing after the marker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.bounded_cache import BoundedCache
from openenv_trl.rollout.rendering import Rendering
from openenv_trl.rollout.task import Message

_MARKER = "q7f3a9c"
_PROBES = ("first answer", 'second\n "answer" {with} <marks> \\n é', "3")
"""Texts of unlike shape: a template that renders all of them alike puts any text between the same two pieces. None
begins or ends with white space, which many templates strip."""


class ToolAnswer(NamedTuple):
    """The answer to one tool call.

    Attributes:
        name: The tool's name; not used for text actions.
        text: What the environment said.
        call_id: The id of the call that it answers.
    """

    name: str
    text: str
    call_id: str


def made_up_id(number: int) -> str:
    """The id of a call that the model gave none, by the call's number in the conversation.

    Nine letters and digits, since some templates (Mistral's) refuse ids of any other shape.
    """
    return f"call{number:05d}"


@dataclass(frozen=True)
class _Cut:
    """A rendered stand-in, cut at the end of its message.

    Attributes:
        tail: From the message's end on.
        own_end: The mark with which the message ends where nothing follows; "" where it has none of its own.
        closing: What the template writes after that mark where nothing follows.
    """

    tail: str
    own_end: str
    closing: str


class MessageTails:
    """The tails of one template, for one way of answering.

    Args:
        rendering: The template.
        answer_role: The role of the messages that bring answers.
        marks: The texts of the tokenizer's special tokens, one of which ends a message.
        tool_name: A name to try with.

    Raises:
        ConfigurationError: The template drops calls or answers, or nothing can be appended to what it writes.
    """

    def __init__(
        self, rendering: Rendering, answer_role: Literal["tool", "user"], marks: Iterable[str], tool_name: str
    ) -> None:
        self._rendering = rendering
        self._role = answer_role
        longest_first = sorted(set(marks) - {""}, key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._frame = BoundedCache(self._make_frame)
        self._one_call_only = False
        probe = (ToolAnswer(tool_name, _PROBES[0], made_up_id(0)),)
        rendering.adapt([*self._stand_in(probe), *self._messages(probe)], [_MARKER, _PROBES[0]])
        cut = self._cut(probe)
        bare = rendering.text(self._stand_in(probe), begin=False, with_tools=False)
        if _PROBES[0] not in cut.tail or (answer_role == "tool" and tool_name not in bare):
            raise self._dropped()
        self.own_end, self.closing = cut.own_end, cut.closing
        """The mark that ends the model's last message, and what the template writes after it."""
        self.begins_with_mark = self._marks.match(cut.tail) is not None
        """Whether what follows a message begins with one of the marks."""
        other_id = (probe[0]._replace(call_id=made_up_id(1)),)
        self.shows_ids = answer_role == "tool" and self.text(other_id) != cut.tail
        """Whether the template writes the ids of calls with their answers."""

    def text(self, answers: tuple[ToolAnswer, ...]) -> str:
        """The tail after a message with as many calls as there are answers.

        Raises:
            ConfigurationError: The template cannot render these answers.
        """
        if len(answers) == 1 or self._role == "user":
            text = "\n\n".join(answer.text for answer in answers)
            frame = self._frame(answers[0]._replace(text="")) if text and text == text.strip() else None
            if frame is not None:
                before, write, after = frame
                return before + write(text) + after
        return self._cut(answers).tail

    def _stand_in(self, answers: tuple[ToolAnswer, ...]) -> list[Message]:
        spoken: Message = {"role": "assistant", "content": ""}
        if self._role == "tool":
            called = answers[:1] if self._one_call_only else answers
            spoken["tool_calls"] = [
                {
                    "type": "function",
                    "id": answer.call_id,
                    "function": {"name": answer.name, "arguments": {"x": _MARKER}},
                }
                for answer in called
            ]
        else:
            spoken["content"] = _MARKER
        return [{"role": "user", "content": "Begin."}, spoken]

    def _messages(self, answers: tuple[ToolAnswer, ...]) -> list[Message]:
        if self._role == "tool":
            return [
                {"role": "tool", "name": name, "content": text, "tool_call_id": call_id}
                for name, text, call_id in answers
            ]
        return [{"role": "user", "content": "\n\n".join(answer.text for answer in answers)}]

    def rendered(self, answers: tuple[ToolAnswer, ...]) -> tuple[str, str]:
        """The stand-in without the answers, and with them."""
        stand_in = self._stand_in(answers)
        spoken = self._rendering.text(stand_in, begin=False)
        return spoken, self._rendering.text([*stand_in, *self._messages(answers)], begin=True)

    def _cut(self, answers: tuple[ToolAnswer, ...]) -> _Cut:
        try:
            spoken, whole = self.rendered(answers)
        except ConfigurationError:
            if len(answers) == 1 or self._role == "user" or self._one_call_only:
                raise
            # Some templates refuse messages of several calls. A model may write such a message all the same, and is
            # then answered by as many messages.
            self._one_call_only = True
            spoken, whole = self.rendered(answers)
        count = spoken.count(_MARKER)
        rest, follows = _after(spoken, count), _after(whole, count)
        if not count or follows is None or rest is None:
            raise self._dropped()
        return self._cut_at_end(rest, follows)

    def _cut_at_end(self, rest: str, follows: str) -> _Cut:
        marks = list(self._marks.finditer(rest))
        if follows.startswith(rest) and (not marks or rest[marks[-1].end() :].strip()):
            return _Cut(follows[len(rest) :], "", "")
        for mark in reversed(marks):
            # A template may close a whole conversation with a mark more than a message inside it.
            if follows.startswith(rest[: mark.end()]):
                return _Cut(follows[mark.start() :], mark[0], rest[mark.end() :])
        for mark in marks:
            # It may also end the last message with another mark than those before: the model samples that of the last.
            if follows.startswith(rest[: mark.start()]) and self._marks.match(follows, mark.start()):
                return _Cut(follows[mark.start() :], mark[0], rest[mark.end() :])
        raise ConfigurationError(
            "The chat template ends messages with no token of its own and changes earlier messages when later ones "
            f"follow, so nothing can be appended. Use another template{self._rendering.way_out}."
        )

    def _make_frame(self, answer: ToolAnswer) -> tuple[str, Callable[[str], str], str] | None:
        """What stands before and after an answer's text, and how the text is written; None where that depends on it."""
        tails = [self._cut((answer._replace(text=probe),)).tail for probe in _PROBES]
        for write in (_as_it_is, _as_json):
            before, found, after = tails[0].partition(write(_PROBES[0]))
            frames = (before + write(probe) + after for probe in _PROBES)
            if found and all(tail == frame for tail, frame in zip(tails, frames, strict=True)):
                return before, write, after
        return None

    def _dropped(self) -> ConfigurationError:
        dropped = "tool calls or their results" if self._role == "tool" else "messages of the user"
        return ConfigurationError(
            f"The chat template drops {dropped}, so a model would never see them. Use a template that shows them "
            f"(chat_template=...){self._rendering.way_out}."
        )


def _after(text: str, count: int) -> str | None:
    """What follows the marker where it stands for the so-many-th time."""
    parts = text.split(_MARKER, count)
    return parts[count] if count and len(parts) > count else None


def _as_it_is(text: str) -> str:
    return text


def _as_json(text: str) -> str:
    # As the filter "tojson" of transformers writes texts.
    return json.dumps(text, ensure_ascii=False)


def without_ids(answers: Sequence[ToolAnswer]) -> tuple[ToolAnswer, ...]:
    """The answers with ids that depend on their order only: for templates that do not show ids."""
    return tuple(answer._replace(call_id=made_up_id(index)) for index, answer in enumerate(answers))
