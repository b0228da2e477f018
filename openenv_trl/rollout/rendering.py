"""A chat template as a function from messages to text, whatever form of messages it wants.

Templates differ in small ways that no flag tells: some take a call's arguments as an object and some as JSON text,
some take a message's content as text and some as a list of blocks. The form is found by trying, once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.plain_text import encodable
from openenv_trl.rollout.task import Message
from openenv_trl.rollout.tokenizer import ChatTokenizer


@dataclass(frozen=True)
class MessageForm:
    """The form in which a template takes messages.

    Attributes:
        text_arguments: Arguments of tool calls go in as JSON text, and not as objects.
        content_blocks: Texts go in as ``[{"type": "text", "text": ...}]``, as templates of vision models have it.
    """

    text_arguments: bool = False
    content_blocks: bool = False

    def of(self, messages: Sequence[Message]) -> list[Message]:
        """The messages in this form; those given stay as they are."""
        return [self._of_message(message) for message in messages]

    def _of_message(self, message: Message) -> Message:
        changed: Message = dict(message)
        if self.content_blocks and isinstance(message.get("content"), str):
            changed["content"] = [{"type": "text", "text": message["content"]}]
        calls: Any = message.get("tool_calls")
        if self.text_arguments and calls:
            changed["tool_calls"] = [_with_text_arguments(call) for call in calls]
        return changed


_FORMS = (MessageForm(), MessageForm(text_arguments=True), MessageForm(content_blocks=True))


class Rendering:
    """Renders messages with one chat template and one set of tools.

    Args:
        tokenizer: Renders and encodes.
        arguments: More arguments for the template.
        definitions: The tools, as templates take them; None without tools.
        way_out: The end of an error's sentence, which says what else to do.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        arguments: Mapping[str, Any],
        definitions: list[Any] | None,
        *,
        way_out: str = "",
    ) -> None:
        self._tokenizer = tokenizer
        self._arguments = dict(arguments)
        self._definitions = definitions
        self._form = _FORMS[0]
        self.way_out = way_out

    def adapt(self, messages: Sequence[Message], shown: Sequence[str]) -> None:
        """Find the form in which the template takes these messages and shows these texts of them.

        Where there is none, the plain form stays: rendering then says what is wrong.
        """
        for form in _FORMS:
            self._form = form
            try:
                text = self.text(messages, begin=True, with_tools=False)
            except ConfigurationError:
                continue
            if all(part in text for part in shown):
                return
        self._form = _FORMS[0]

    def text(self, messages: Sequence[Message], *, begin: bool, with_tools: bool = True) -> str:
        """The messages as the template writes them.

        Args:
            messages: What was said.
            begin: Whether the header of the model's next message follows.
            with_tools: Whether the tools are offered.

        Raises:
            ConfigurationError: The template cannot render them.
        """
        try:
            return self._tokenizer.apply_chat_template(
                self._form.of(messages),
                tools=self._definitions if with_tools else None,
                add_generation_prompt=begin,
                tokenize=False,
                **self._arguments,
            )
        except Exception as error:  # boundary: a template is a program of anyone's, and may raise anything
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise ConfigurationError(
                f"The chat template cannot render messages of the roles {roles}: {error}. Use a template that can "
                f"(chat_template=...){self.way_out}."
            ) from error

    def ids(self, text: str) -> tuple[int, ...]:
        """A rendered text as ids."""
        return tuple(self._tokenizer.encode(encodable(text), add_special_tokens=False))


def _with_text_arguments(call: Any) -> Any:
    if not isinstance(call, Mapping):
        return call
    fields = dict(cast("Mapping[str, Any]", call))
    function: Any = fields.get("function")
    if isinstance(function, Mapping):
        function = dict(cast("Mapping[str, Any]", function))
        if not isinstance(function.get("arguments"), str):
            function["arguments"] = json.dumps(function.get("arguments"), ensure_ascii=False)
        fields["function"] = function
    return fields
