"""Thoughts of a reasoning model: where they end in a message, and what a chat template makes of earlier ones.

Within a dialogue of tool calls the templates known to TRL keep all thoughts, since they only drop those before the
last message of the user. In a dialogue of texts, where each answer is such a message, many drop all earlier thoughts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.message_tail import made_up_id
from openenv_trl.rollout.rendering import Rendering
from openenv_trl.rollout.task import Message

_BEGIN, _TURNS = "b4e8f1d", 2


@dataclass(frozen=True)
class Thoughts:
    """What a chat template does with the thoughts of a dialogue of texts.

    Attributes:
        close: What stands between the thoughts and the rest of a message, without white space around it.
        dropped: Whether the template drops the thoughts of all messages but the last; None where it drops some.
        header: How the model's next message is begun, from the end of the user's text on.
        earlier_header: How an earlier message of the model's is begun, up to what it says, its thoughts dropped.
    """

    close: str
    dropped: bool | None
    header: str
    earlier_header: str


def find_thoughts(rendering: Rendering) -> Thoughts:
    """Try the template with messages that hold thoughts, in each of the ways that templates take them.

    Raises:
        ConfigurationError: The template cannot render a dialogue of texts.
    """
    prompt: Message = {"role": "user", "content": _BEGIN}
    header = rendering.text([prompt], begin=True).rpartition(_BEGIN)[2]
    for field in ("reasoning_content", "thinking", "reasoning", ""):
        try:
            spoken = rendering.text([prompt, _message(field, 0)], begin=False)
        except ConfigurationError:
            if not field:
                raise
            continue
        if field and _thought(0) not in spoken:
            continue
        _, _, between = spoken.partition(_thought(0))
        close = between.partition(_said(0))[0].strip() or "</think>"
        whole = rendering.text(_conversation(prompt, field), begin=True)
        kept = [_thought(turn) in whole for turn in range(_TURNS)]
        earlier_header = whole.rpartition(_BEGIN)[2].partition(_said(0))[0]
        return Thoughts(close, None if any(kept) != all(kept) else not any(kept), header, earlier_header)
    raise AssertionError("the last way is always taken")


def said_from(ids: Sequence[int], close: str, decode: Callable[[Sequence[int]], str]) -> int:
    """The place in a message's ids from which on it says something: behind its thoughts; 0 where it has none.

    Args:
        ids: The sampled ids, which are not changed.
        close: What ends the thoughts.
        decode: Ids to text, control tokens included.
    """
    if close not in decode(ids):
        return 0
    low, high = 1, len(ids)
    while low < high:
        middle = (low + high) // 2
        if close in decode(ids[:middle]):
            high = middle
        else:
            low = middle + 1
    while low < len(ids) and not decode(ids[low : low + 1]).strip():
        low += 1
    return low


def drops_thoughts(rendering: Rendering, answer_role: Literal["tool", "user"]) -> bool:
    """Whether the template drops all earlier thoughts of such a dialogue, and not none.

    Raises:
        ConfigurationError: It drops some, or those of tool calls, which no context is made without here.
    """
    dropped = find_thoughts(rendering).dropped if answer_role == "user" else not _keeps_with_calls(rendering)
    if dropped is None or (dropped and answer_role == "tool"):
        some = "some earlier messages" if answer_role == "user" else "earlier tool calls"
        raise ConfigurationError(
            f'The chat template drops the thoughts of {some}, which thoughts="template" cannot follow. Set '
            'thoughts="keep".'
        )
    return dropped


def _keeps_with_calls(rendering: Rendering) -> bool:
    messages: list[Message] = [{"role": "user", "content": _BEGIN}]
    for turn in range(_TURNS):
        call_id = made_up_id(turn)
        call = {"type": "function", "id": call_id, "function": {"name": "tool", "arguments": {"x": _said(turn)}}}
        messages += [
            {"role": "assistant", "content": "", "reasoning_content": _thought(turn), "tool_calls": [call]},
            {"role": "tool", "name": "tool", "content": f"answer{turn}", "tool_call_id": call_id},
        ]
    last_alone = rendering.text(messages[:2], begin=False)
    whole = rendering.text(messages, begin=True)
    return _thought(0) not in last_alone or all(_thought(turn) in whole for turn in range(_TURNS))


def _message(field: str, turn: int) -> Message:
    if field:
        return {"role": "assistant", "content": _said(turn), field: _thought(turn)}
    return {"role": "assistant", "content": f"<think>\n{_thought(turn)}\n</think>\n\n{_said(turn)}"}


def _conversation(prompt: Message, field: str) -> list[Message]:
    messages = [prompt]
    for turn in range(_TURNS):
        messages += [_message(field, turn), {"role": "user", "content": f"answer{turn}"}]
    return messages


def _thought(turn: int) -> str:
    return f"t5c9a{turn}"


def _said(turn: int) -> str:
    return f"s2d6e{turn}"
