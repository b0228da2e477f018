"""A chat template, checked once and cut into pieces, so that a dialogue is never rendered again.

What follows a message of the model (its end, the environment's answer, the header of the next message) is found by
rendering a short stand-in conversation and taking what comes after the stand-in's message. Nothing of a real
dialogue is rendered twice, and no sampled id is ever decoded and encoded again.

The end of a message belongs to the model where it sampled it, and else to the template: a message whose end token
the sampler did not return gets it as an id that is not trained on.

Control tokens come from the template and from the prompt, whose author is the user; never from what environments say
or their tools (see `plain_text`).
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.json_text import json_text
from openenv_trl.rollout.plain_text import ControlTokens, encodable
from openenv_trl.rollout.task import Message
from openenv_trl.rollout.tokenizer import ChatTokenizer
from openenv_trl.rollout.tool_schema import random_arguments, tool_definition
from openenv_trl.types import Tool
from openenv_trl.wire import codec

Answers = tuple[tuple[str, str], ...]
"""Tool names and texts, in the order of the calls."""

_CACHED_TEXTS = 8192
_PROBES = ("first answer", 'second\n "answer" {with} <marks>', "3")
"""Texts of unlike shape: a template that renders all of them alike puts any text between the same two pieces. None
begins or ends with white space, which many templates strip."""


class DialogueTemplate:
    """A tokenizer's chat template, for one set of tools.

    Args:
        tokenizer: A tokenizer with a chat template.
        tools: The tools that the prompt offers; empty for text actions. A template may leave them out of the prompt.
        answer_role: The role of the messages that bring observations.
        chat_template: A template to use in place of the tokenizer's own.
        chat_template_kwargs: More arguments for the template, such as ``{"enable_thinking": False}``.

    Raises:
        ConfigurationError: The template cannot carry such a dialogue: it drops tool calls or their results, there is
            no response template to read tool calls with or it does not fit the chat template, or the tokenizer has
            no end token. The text says what to set.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        tools: Sequence[Tool] = (),
        *,
        answer_role: Literal["tool", "user"] = "tool",
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.tools = tuple(tools)
        self.answer_role = answer_role
        self._arguments = dict(chat_template_kwargs or {})
        if chat_template is not None:
            self._arguments["chat_template"] = chat_template
        elif getattr(tokenizer, "chat_template", None) is None:
            raise ConfigurationError(
                "The tokenizer has no chat template. Use the tokenizer of an instruction-tuned model, or set "
                "tokenizer.chat_template."
            )
        end_id: Any = tokenizer.eos_token_id
        if not isinstance(end_id, int):
            raise ConfigurationError("The tokenizer has no end token. Set tokenizer.eos_token.")
        self.end_id = end_id
        added: dict[str, int] = getattr(tokenizer, "get_added_vocab", dict[str, int])()
        self._special_ids = {end_id, *tokenizer.all_special_ids, *added.values()}
        source = chat_template or getattr(tokenizer, "chat_template", "")
        self._control_tokens = ControlTokens(tokenizer, str(source))
        self._definitions = [self._control_tokens.defuse_all(tool_definition(tool)) for tool in tools] or None
        self._prompt_ids = lru_cache(_CACHED_TEXTS)(self._make_prompt_ids)
        self._tail_ids = lru_cache(_CACHED_TEXTS)(self._make_tail_ids)
        self._frame = lru_cache(_CACHED_TEXTS)(self._make_frame)
        self._text = lru_cache(_CACHED_TEXTS)(self._make_text)
        self._parsed = lru_cache(_CACHED_TEXTS)(self._make_parsed)
        self._message_ids = lru_cache(_CACHED_TEXTS)(self._make_message_ids)
        self._end_text = self._find_end()
        self._header = self._render([{"role": "user", "content": "Begin."}], begin=True, with_tools=False)
        self._check_answers()
        self._parser = self._find_parser() if self.tools else None
        if self._parser is not None:
            self._check_parser(self._parser)

    def defuse(self, text: str) -> tuple[str, int]:
        """Text from outside with the marks of control tokens broken, and how many there were."""
        return self._control_tokens.defuse(text)

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the rendered messages and tools, up to where the model begins to write.

        Raises:
            ConfigurationError: The chat template refuses these messages.
        """
        return list(self._prompt_ids(json_text(list(messages))))

    def answer_ids(self, answers: Sequence[tuple[str, str]], completion_ids: Sequence[int]) -> list[int]:
        """Ids after the model's message: its end if that is not written yet, the answers, the next header.

        Args:
            answers: Pairs of the tool's name and the text, in the order of the calls (the name is not used for text
                actions). They come from outside: marks of control tokens in them are broken.
            completion_ids: The model's message, whose last id tells whether its end is still to be written.
        """
        ids = self._tail_ids(tuple((self.defuse(name)[0], self.defuse(text)[0]) for name, text in answers))
        end_is_written = bool(completion_ids) and completion_ids[-1] == ids[0] and ids[0] in self._special_ids
        return list(ids[1:] if end_is_written else ids)

    def message_ids(self, message: Message) -> list[int]:
        """Ids that a model would have to sample to write this message, its end token included.

        Raises:
            ConfigurationError: The chat template writes messages of the model otherwise than it begins them.
        """
        return list(self._message_ids(json_text(message)))

    def parse_message(self, completion_ids: Sequence[int]) -> Message:
        """Read the model's message with the tokenizer's response template. Do not change what it returns.

        Raises:
            ValueError: It cannot be read: a tool call is broken, or the parser is at a loss.
        """
        return self._parsed(tuple(completion_ids))

    def text(self, ids: Sequence[int]) -> str:
        """Ids as text for people and for text actions, without special tokens."""
        return self._text(tuple(ids))

    def shorten(self, text: str, max_tokens: int) -> tuple[str, int]:
        """The text cut to so many tokens, with a note of the cut after it, and the number of tokens dropped."""
        ids = self._encode(text)
        dropped = len(ids) - max_tokens
        if dropped <= 0:
            return text, 0
        return f"{self.text(ids[:max_tokens])} [... {dropped} tokens cut]", dropped

    def _render(self, messages: Sequence[Message], *, begin: bool, with_tools: bool = True) -> str:
        tools = self._definitions if with_tools else None
        try:
            return self.tokenizer.apply_chat_template(
                list(messages), tools=tools, add_generation_prompt=begin, tokenize=False, **self._arguments
            )
        except Exception as error:  # a template is a program of anyone's: it may raise anything
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise ConfigurationError(
                f"The chat template cannot render messages of the roles {roles}: {error}. Use a template that can "
                f"(chat_template=...){self._text_way_out()}."
            ) from error

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(encodable(text), add_special_tokens=False))

    def _stand_in(self, tool_name: str) -> list[Message]:
        spoken: Message = {"role": "assistant", "content": ""}
        if self.answer_role == "tool":
            spoken["tool_calls"] = [{"type": "function", "function": {"name": tool_name, "arguments": {}}}]
        else:
            spoken["content"] = "Yes."
        return [{"role": "user", "content": "Begin."}, spoken]

    def _answer_messages(self, answers: Answers) -> list[Message]:
        if self.answer_role == "tool":
            return [{"role": "tool", "name": name, "content": text} for name, text in answers]
        return [{"role": "user", "content": "\n\n".join(text for _, text in answers)}]

    def _find_end(self) -> str:
        """The text of the token that ends the model's messages; "" where they end with none of their own."""
        answers: Answers = ((self._any_tool_name(), _PROBES[0]),)
        stand_in = self._stand_in(self._any_tool_name())
        spoken = self._render(stand_in, begin=False)
        whole = self._render([*stand_in, *self._answer_messages(answers)], begin=True)
        decode = self.tokenizer.decode
        marks = {cast("str", decode([token], skip_special_tokens=False)) for token in self._special_ids} - {""}
        for mark in sorted((mark for mark in marks if mark in spoken), key=spoken.rfind, reverse=True):
            # Some templates close a whole conversation with the end token, and no message inside it.
            if whole.count(mark) >= spoken.count(mark):
                return mark if not spoken[spoken.rfind(mark) + len(mark) :].strip() else ""
            spoken = spoken[: spoken.rfind(mark)]
        return ""

    def _tail_text(self, answers: Answers) -> str:
        """All that the template writes after a message of the model's, from that message's end token on."""
        stand_in = self._stand_in(answers[0][0])
        spoken = self._render(stand_in, begin=False)
        whole = self._render([*stand_in, *self._answer_messages(answers)], begin=True)
        if not self._end_text:
            if not whole.startswith(spoken):
                raise ConfigurationError(
                    "The chat template ends messages with no token of its own and changes earlier messages when "
                    f"later ones follow, so nothing can be appended. Use another template{self._text_way_out()}."
                )
            return whole[len(spoken) :]
        # The stand-in's end is the last end token without an answer; with one, the same count from the start. So
        # a template may write earlier messages otherwise than their last (dropping thoughts): here they stay.
        at = -1
        for _ in range(spoken.count(self._end_text)):
            at = whole.find(self._end_text, at + 1)
        return whole[at:]

    def _make_tail_ids(self, answers: Answers) -> tuple[int, ...]:
        if len(answers) == 1 or self.answer_role == "user":
            name, text = answers[0][0], "\n\n".join(text for _, text in answers)
            frame = self._frame(name) if text and text == text.strip() else None
            if frame is not None:
                return self._encode(frame[0] + text + frame[1])
        return self._encode(self._tail_text(answers))

    def _make_frame(self, tool_name: str) -> tuple[str, str] | None:
        """What stands before and after an answer's text; None where that depends on the text."""
        before, found, after = self._tail_text(((tool_name, _PROBES[0]),)).partition(_PROBES[0])
        tails = [self._tail_text(((tool_name, probe),)) for probe in _PROBES[1:]]
        alike = all(tail == before + probe + after for tail, probe in zip(tails, _PROBES[1:], strict=True))
        return (before, after) if found and alike else None

    def _make_prompt_ids(self, messages: str) -> tuple[int, ...]:
        return self._encode(self._render(codec.decode(messages), begin=True))

    def _make_message_ids(self, message: str) -> tuple[int, ...]:
        user: Message = {"role": "user", "content": "Begin."}
        header = self._render([user], begin=True)
        whole = self._render([user, codec.decode(message)], begin=False)
        end = whole.rfind(self._end_text) + len(self._end_text) if self._end_text else len(whole)
        if not whole.startswith(header) or end <= len(header):
            raise ConfigurationError(
                "The chat template does not write messages of the model the way add_generation_prompt begins them, "
                "so none can be made up. Try chat_template_kwargs (such as enable_thinking) or another template."
            )
        return self._encode(whole[len(header) : end])

    def _check_answers(self) -> None:
        name, probe = self._any_tool_name(), "answer7f3a"
        stand_in = [*self._stand_in(name), *self._answer_messages(((name, probe),))]
        whole = self._render(stand_in, begin=True)
        spoken = self._render(self._stand_in(name), begin=False, with_tools=False)
        tail = self._tail_text(((name, probe),))
        if probe not in tail or (self.answer_role == "tool" and name not in spoken):
            dropped = "tool calls or their results" if self.answer_role == "tool" else "messages of the user"
            raise ConfigurationError(
                f"The chat template drops {dropped}, so a model would never see them. Use a template that shows them "
                f"(chat_template=...){self._text_way_out()}."
            )
        ids = self._encode(tail)
        if not ids or ids[0] not in self._special_ids or self._encode(whole)[-len(ids) :] != ids:
            raise ConfigurationError(
                "The chat template's messages do not end with a token of their own, so what follows them would merge "
                f"with them. Use a template whose messages end with an end token{self._text_way_out()}."
            )

    def _find_parser(self) -> Callable[[Sequence[int]], Any]:
        tokenizer: Any = self.tokenizer
        parse = getattr(tokenizer, "parse_response", None)
        if parse is None or not (
            getattr(tokenizer, "response_template", None) or getattr(tokenizer, "response_schema", None)
        ):
            raise ConfigurationError(
                "The tokenizer has no response template, so tool calls cannot be read. Set "
                "tokenizer.response_template = {...} (trl.chat_template_utils.add_response_schema(tokenizer) sets it "
                f"for many models){self._text_way_out()}."
            )
        # Newer versions of transformers take the prompt's end, then also the tools to type the arguments with.
        known = inspect.signature(parse).parameters
        given: dict[str, Any] = {"prefix": self._header, "tools": self._definitions}
        arguments = {key: value for key, value in given.items() if key in known}
        return lambda ids: parse(list(ids), **arguments)

    def _check_parser(self, parse: Callable[[Sequence[int]], Any]) -> None:
        """Read back one call that the chat template wrote: a response template of another model reads none."""
        tool = self.tools[0]
        try:
            arguments = random_arguments(tool, random.Random(0))
            function = {"name": tool.name, "arguments": arguments}
            calls = [{"type": "function", "function": function}]
            ids = self.message_ids({"role": "assistant", "content": "", "tool_calls": calls})
        except Exception:  # boundary: schemas are anyone's, and some templates begin messages otherwise
            return  # so no call can be made up to try the parser with
        cause: Exception | None = None
        try:
            found: Any = parse(ids)
        except Exception as error:  # boundary: as in `_make_parsed`
            found, cause = f"{type(error).__name__}: {error}", error
        if not _holds_call(found, tool.name, arguments):
            raise ConfigurationError(
                "The tokenizer's response template does not read the tool calls that the chat template writes: of "
                f"{self.tokenizer.decode(ids)!r:.200} it made {found!r:.200}. Set tokenizer.response_template to the "
                "one of this chat template (trl.chat_template_utils.add_response_schema(tokenizer) sets it for many "
                f"models){self._text_way_out()}."
            ) from cause

    def _make_parsed(self, completion_ids: tuple[int, ...]) -> Message:
        if self._parser is None:
            return {"role": "assistant", "content": self.text(completion_ids)}
        try:
            message: Any = self._parser(completion_ids)
        except Exception as error:  # boundary: what a tokenizer's parser raises for odd text is known to nobody
            raise ValueError((str(error) or type(error).__name__).split("\n")[0][:200]) from error
        if not isinstance(message, dict):
            return {"role": "assistant", "content": self.text(completion_ids)}
        return cast("Message", message)

    def _make_text(self, ids: tuple[int, ...]) -> str:
        return cast("str", self.tokenizer.decode(ids, skip_special_tokens=True))

    def _any_tool_name(self) -> str:
        return self.tools[0].name if self.tools else "tool"

    def _text_way_out(self) -> str:
        return ", or let the model act in text: actions=TextActions(...)" if self.answer_role == "tool" else ""


def _holds_call(message: Any, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a parsed message is one call of this tool, with arguments of these names."""
    calls: Any = cast("Message", message).get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list) or len(cast("list[Any]", calls)) != 1:
        return False
    call = cast("list[Any]", calls)[0]
    function: Any = cast("Message", call).get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return False
    given: Any = cast("Message", function).get("arguments") or {}
    return (
        cast("Message", function).get("name") == name and isinstance(given, dict) and given.keys() == arguments.keys()
    )
