"""Every tool call of a conversation has an id, so that results can be told apart where there are several."""

from __future__ import annotations

from dataclasses import replace

from openenv_trl.rollout.actions import ParsedTurn
from openenv_trl.rollout.message_tail import made_up_id
from openenv_trl.rollout.task import Message


def with_ids(parsed: ParsedTurn, first_number: int) -> ParsedTurn:
    """The message with an id at each call: the model's own where it gave one, else one made of the call's number.

    Args:
        parsed: A message of the model.
        first_number: How many calls the conversation has had before.
    """
    if not parsed.calls or all(not call.name for call in parsed.calls):
        return parsed
    calls = tuple(
        call if call.id else replace(call, id=made_up_id(first_number + index))
        for index, call in enumerate(parsed.calls)
    )
    shown: list[Message] = [
        {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    return replace(parsed, calls=calls, message={**parsed.message, "tool_calls": shown})
