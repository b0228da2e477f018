"""A chat template, checked once and cut into pieces, so that a dialogue is never rendered again.

Nothing of a real dialogue is rendered twice, and no sampled id is ever decoded and encoded again: what follows a
message of the model is found with a stand-in (see `message_tail`) and appended.

The end of a message belongs to the model where it sampled it, and else to the template: a message whose end token
the sampler did not return gets it as an id that is not trained on.

Control tokens come from the template and from the prompt, whose author is the user; never from what environments say
or their tools (see `plain_text`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.bounded_cache import BoundedCache
from openenv_trl.rollout.json_text import json_text
from openenv_trl.rollout.message_tail import MessageTails, ToolAnswer, made_up_id, without_ids
from openenv_trl.rollout.observation_cut import Cut, shorten
from openenv_trl.rollout.plain_text import ControlTokens
from openenv_trl.rollout.rendering import Rendering
from openenv_trl.rollout.response_reader import check_parser, find_parser
from openenv_trl.rollout.segments import ThoughtlessHistory
from openenv_trl.rollout.task import Message
from openenv_trl.rollout.thoughts import drops_thoughts, find_thoughts, said_from
from openenv_trl.rollout.tokenizer import ChatTokenizer
from openenv_trl.rollout.tool_schema import tool_definition
from openenv_trl.types import Tool
from openenv_trl.wire import codec

_WAY_OUT = ", or let the model act in text: actions=TextActions(...)"


class DialogueTemplate:
    """A tokenizer's chat template, for one set of tools.

    Args:
        tokenizer: A tokenizer with a chat template.
        tools: The tools that the prompt offers; empty for text actions. A template may leave them out of the prompt.
        answer_role: The role of the messages that bring observations.
        chat_template: A template to use in place of the tokenizer's own.
        chat_template_kwargs: More arguments for the template, such as ``{"enable_thinking": False}``.
        thoughts: "keep": the model is shown all its earlier thoughts, as it sampled them. "template": it is shown what
            the chat template shows; where that drops earlier thoughts, an episode becomes several rows of training,
            of which TRL takes the last only.

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
        thoughts: Literal["keep", "template"] = "keep",
    ) -> None:
        self.tokenizer = tokenizer
        self.tools = tuple(tools)
        self.answer_role: Literal["tool", "user"] = answer_role
        arguments = dict(chat_template_kwargs or {})
        if chat_template is not None:
            arguments["chat_template"] = chat_template
        elif getattr(tokenizer, "chat_template", None) is None:
            raise ConfigurationError(
                "The tokenizer has no chat template. Use the tokenizer of an instruction-tuned model, or set "
                "tokenizer.chat_template."
            )
        end_id: Any = tokenizer.eos_token_id
        if not isinstance(end_id, int):
            raise ConfigurationError("The tokenizer has no end token. Set tokenizer.eos_token.")
        self.end_id = end_id
        source = chat_template or getattr(tokenizer, "chat_template", "")
        self._control_tokens = ControlTokens(tokenizer, str(source))
        definitions = [self._control_tokens.defuse_all(tool_definition(tool)) for tool in tools] or None
        way_out = _WAY_OUT if answer_role == "tool" else ""
        self._rendering = Rendering(tokenizer, arguments, definitions, way_out=way_out)
        self._prompt_ids = BoundedCache(self._make_prompt_ids)
        self._tail_ids = BoundedCache(self._make_tail_ids)
        self._text = BoundedCache(self._make_text)
        self._parsed = BoundedCache(self._make_parsed)
        self._message_ids = BoundedCache(self._make_message_ids)
        self._special_ids = {end_id, *tokenizer.all_special_ids}
        self._tails = self._find_tails()
        self._check_tails()
        self._header = self._rendering.text([{"role": "user", "content": "Begin."}], begin=True, with_tools=False)
        self._parser = find_parser(
            tokenizer, header=self._header, definitions=definitions, is_needed=bool(tools), way_out=way_out
        )
        if self._parser is not None and tools:
            check_parser(self._parser, self.tools[0], self.message_ids, self.tokenizer.decode, way_out)
        self.drops_thoughts = thoughts == "template" and drops_thoughts(self._rendering, answer_role)
        """Whether a dialogue leaves out the thoughts of earlier messages."""
        self._thoughts = find_thoughts(self._rendering) if answer_role == "user" else None

    def defuse(self, text: str) -> tuple[str, int]:
        """Text from outside with the marks of control tokens broken, and how many there were."""
        return self._control_tokens.defuse(text)

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the rendered messages and tools, up to where the model begins to write.

        Raises:
            ConfigurationError: The chat template refuses these messages.
        """
        return list(self._prompt_ids(json_text(list(messages))))

    def answer_ids(
        self, answers: Sequence[tuple[str, str]], completion_ids: Sequence[int], call_ids: Sequence[str] = ()
    ) -> list[int]:
        """Ids after the model's message: its end if that is not written yet, the answers, the next header.

        Args:
            answers: Pairs of the tool's name and the text, in the order of the calls (the name is not used for text
                actions). They come from outside: marks of control tokens in them are broken.
            completion_ids: The model's message, whose last id tells whether its end is still to be written.
            call_ids: The ids of the calls that are answered, where there are any.
        """
        given = tuple(
            ToolAnswer(
                self.defuse(name)[0],
                self.defuse(text)[0],
                self.defuse(call_ids[index])[0] if index < len(call_ids) else made_up_id(index),
            )
            for index, (name, text) in enumerate(answers)
        )
        ids = self._tail_ids(given if self._tails.shows_ids else without_ids(given))
        return list(ids[self._already_written(ids, completion_ids) :])

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

    def split_thoughts(self, completion_ids: Sequence[int]) -> tuple[str, str]:
        """The thoughts of a message of text, "" where it has none, and what it says; for people and text actions."""
        at = self._said_from(completion_ids)
        thoughts = self.text(completion_ids[:at])
        if self._thoughts is not None and at:
            thoughts = thoughts.rpartition(self._thoughts.close)[0] or thoughts
            thoughts = thoughts.strip().removeprefix("<think>").strip()
        return thoughts, self.text(completion_ids[at:])

    def thoughtless_history(self, messages: Sequence[Message]) -> ThoughtlessHistory:
        """The beginning of a dialogue whose earlier thoughts are left out.

        Raises:
            ConfigurationError: The chat template refuses these messages, or they do not end with one of the user's.
        """
        assert self._thoughts is not None
        text = self._rendering.text(list(messages), begin=True)
        if not text.endswith(self._thoughts.header):
            raise ConfigurationError('With thoughts="template" a prompt must end with a message of the user\'s.')
        return ThoughtlessHistory(self._thoughts.header, self._thoughts.earlier_header, self._rendering.ids, text)

    def thoughtless(self, answers: Sequence[tuple[str, str]], completion_ids: Sequence[int]) -> tuple[list[int], str]:
        """What stays of a message once it is answered: its ids without thoughts and end, and the text behind them."""
        tail = self._tails.text(without_ids([ToolAnswer("", self.defuse(text)[0], "") for _, text in answers]))
        ends = self._already_written(self._rendering.ids(tail), completion_ids)
        last = len(completion_ids) - bool(ends)
        return list(completion_ids[self._said_from(completion_ids) : last]), tail

    def text(self, ids: Sequence[int]) -> str:
        """Ids as text for people and for text actions, without special tokens."""
        return self._text(tuple(ids))

    def shorten(self, text: str, max_tokens: int, cut: Cut = "tail") -> tuple[str, int]:
        """The text cut to so many tokens, with a note where it was cut, and the number of tokens dropped.

        Args:
            text: Text from outside; marks of control tokens in it are broken.
            max_tokens: Tokens that are kept; those of the note come on top.
            cut: What is left out: its end, its beginning, or its middle.
        """
        return shorten(text, max_tokens, cut, encode=self._rendering.ids, decode=self.text)

    def _said_from(self, completion_ids: Sequence[int]) -> int:
        if self._thoughts is None:
            return 0
        return said_from(completion_ids, self._thoughts.close, self.tokenizer.decode)

    def _find_tails(self) -> MessageTails:
        """Tails that begin with a special token; where they begin with none, with another added token."""
        tokenizer, decode = self.tokenizer, self.tokenizer.decode
        details: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
        special = self._special_ids | {token for token, detail in details.items() if getattr(detail, "special", False)}
        added: dict[str, int] = getattr(tokenizer, "get_added_vocab", dict[str, int])()
        name = self.tools[0].name if self.tools else "tool"
        self._special_ids = special | set(added.values())
        tails: MessageTails | None = None
        for candidates in (special, self._special_ids):
            marks = [cast("str", decode([token], skip_special_tokens=False)) for token in sorted(candidates)]
            tails = MessageTails(self._rendering, self.answer_role, marks, name)
            if tails.begins_with_mark:
                break
        assert tails is not None
        return tails

    def _check_tails(self) -> None:
        name, probe = self.tools[0].name if self.tools else "tool", "answer7f3a"
        answer = (ToolAnswer(name, probe, made_up_id(0)),)
        _, whole = self._tails.rendered(answer)
        ids = self._tail_ids(answer)
        if not ids or ids[0] not in self._special_ids or self._rendering.ids(whole)[-len(ids) :] != ids:
            raise ConfigurationError(
                "The chat template's messages do not end with a token of their own, so what follows them would merge "
                f"with them. Use a template whose messages end with an end token{self._rendering.way_out}."
            )
        own_end = self._rendering.ids(self._tails.own_end)
        self._own_end_id = own_end[0] if len(own_end) == 1 else ids[0]

    def _already_written(self, tail: tuple[int, ...], completion_ids: Sequence[int]) -> int:
        """How many ids at the beginning of a tail the model has sampled itself."""
        last = completion_ids[-1] if completion_ids else -1
        for index, token in enumerate(tail):
            if token not in self._special_ids:
                break
            if token == last:
                return index + 1
        return 1 if last == self._own_end_id else 0

    def _make_prompt_ids(self, messages: str) -> tuple[int, ...]:
        return self._rendering.ids(self._rendering.text(codec.decode(messages), begin=True))

    def _make_tail_ids(self, answers: tuple[ToolAnswer, ...]) -> tuple[int, ...]:
        return self._rendering.ids(self._tails.text(answers))

    def _make_message_ids(self, message: str) -> tuple[int, ...]:
        user: Message = {"role": "user", "content": "Begin."}
        header = self._rendering.text([user], begin=True)
        whole = self._rendering.text([user, codec.decode(message)], begin=False)
        closing = self._tails.closing
        if whole.endswith(self._tails.own_end + closing):
            whole = whole[: len(whole) - len(closing)]
        elif self._tails.own_end:
            whole = whole[: whole.rfind(self._tails.own_end) + len(self._tails.own_end)]
        if not whole.startswith(header) or len(whole) <= len(header):
            raise ConfigurationError(
                "The chat template does not write messages of the model the way add_generation_prompt begins them, "
                "so none can be made up. Try chat_template_kwargs (such as enable_thinking) or another template."
            )
        ids = self._rendering.ids(whole[len(header) :])
        return ids if self._tails.own_end else (*ids, self._own_end_id)

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
