"""A conversation with a policy that takes messages and gives messages: for evaluation and collecting, not training.

Nothing of it is known as tokens. Messages go out in OpenAI's form: tool calls keep their ids, each is answered by a
``tool`` message of its id in the order of the calls, and arguments are JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from openenv_trl.rollout.actions import ActionInterface, ParsedTurn, ToolCall
from openenv_trl.rollout.batching import BatchedPolicy
from openenv_trl.rollout.call_ids import with_ids
from openenv_trl.rollout.conversation import Heard, TokenRecord
from openenv_trl.rollout.failures import EpisodeFailed
from openenv_trl.rollout.policy import Reply
from openenv_trl.rollout.task import Message
from openenv_trl.rollout.text_rules import token_count
from openenv_trl.rollout.trajectory import EndReason

_FRAME_TOKENS = 4  # of a message's role and marks, where they are only estimated


class ChatConversation:
    """One conversation in messages.

    Tokens are those that the policy reports for its own messages, and estimated from the length for the environment's.

    Args:
        actions: Reads actions out of the model's messages.
        policy: Who speaks.
        messages: The prompt.
        max_generation_attempts: Tries of a message that the policy gives back as failed.
    """

    def __init__(
        self,
        actions: ActionInterface,
        policy: BatchedPolicy,
        messages: Sequence[Message],
        *,
        max_generation_attempts: int = 1,
    ) -> None:
        self._actions = actions
        self._policy = policy
        self._attempts = max_generation_attempts
        self._messages = [dict(message) for message in messages]
        self._calls = 0
        self._call_ids: list[str] = []
        self._tokens = 0

    @property
    def messages(self) -> list[Message]:
        """The conversation so far, as the policy is given it."""
        return [dict(message) for message in self._messages]

    @property
    def tokens_used(self) -> int:
        """About how many tokens came after the prompt."""
        return self._tokens

    async def ask(self, max_new_tokens: int) -> Heard:
        """The model's next message.

        Raises:
            EpisodeFailed: It failed, also when it was tried again.
            PolicyError: The policy raised.
        """
        reply = await self._reply(max_new_tokens)
        message = dict(reply.message)
        text = _text(message.get("content"))
        given = _list(message.get("tool_calls"))
        calls = [_with_object(call) for call in given]
        tokens = reply.tokens
        if tokens is None:
            tokens = token_count(text) + sum(token_count(json.dumps(call, default=str)) for call in calls)
        self._tokens += tokens
        parsed = self._parsed({**message, "content": text, "tool_calls": calls}, given) if reply.finished else None
        self._call_ids = [] if parsed is None else [call.id for call in parsed.calls if call.id]
        self._remember(message, given, parsed)
        if parsed is not None and reply.reasoning:
            parsed = replace(parsed, message={**parsed.message, "reasoning_content": reply.reasoning})
        return Heard(parsed, text, tokens)

    def answer(self, answers: Sequence[tuple[str, str]], max_tokens: int) -> bool:
        """Append the answers, where about as many tokens are left."""
        tokens = sum(token_count(text) + _FRAME_TOKENS for _, text in answers)
        if self._tokens + tokens >= max_tokens:
            return False
        self._tokens += tokens
        ids = self._call_ids
        self._messages += [
            {"role": "tool", "tool_call_id": ids[index], "content": text}
            for index, (_, text) in enumerate(answers[: len(ids)])
        ]
        # What answers no call (an action in text, a message that could not be read) is the user's to say.
        rest = "\n\n".join(text for _, text in answers[len(ids) :])
        if rest:
            self._messages.append({"role": "user", "content": rest})
        return True

    def record(self) -> TokenRecord:
        """No tokens: they are not known."""
        return TokenRecord(logprobs=None, exact=False)

    async def _reply(self, max_new_tokens: int) -> Reply:
        problem = ""
        for _ in range(self._attempts):
            reply = await self._policy.respond(self._messages, self._actions.tools, max_new_tokens)
            if isinstance(reply, Reply):
                return reply
            problem = reply.error
            if not reply.retryable:
                break
        raise EpisodeFailed(EndReason.GENERATION_FAILED, f"generate: {problem}")

    def _parsed(self, message: Message, given: Sequence[Any]) -> ParsedTurn:
        parsed = self._actions.read(message)
        if not parsed.calls or not given:
            return parsed
        known = {tool.name for tool in self._actions.tools}
        calls = tuple(
            _not_json(call, text) if isinstance(text := _arguments(one), str) and call.name in known else call
            for call, one in zip(parsed.calls, _list(message["tool_calls"]), strict=True)
        )
        # Some servers give every call the same id, or none: then each gets one of its own.
        ids = [call.id for call in calls]
        if len(set(ids)) < len(ids):
            calls = tuple(replace(call, id="") for call in calls)
        parsed = with_ids(replace(parsed, calls=calls), self._calls)
        if parsed.calls and not parsed.calls[0].id:  # calls without a name get none there
            named = tuple(
                replace(call, id=call.id or f"call_{self._calls + index}") for index, call in enumerate(parsed.calls)
            )
            parsed = replace(parsed, calls=named)
        self._calls += len(parsed.calls)
        return parsed

    def _remember(self, message: Message, given: Sequence[Any], parsed: ParsedTurn | None) -> None:
        """Append the model's message in the form in which every server takes it back."""
        kept = {key: value for key, value in message.items() if key != "tool_calls"}
        kept.setdefault("role", "assistant")
        if self._call_ids and parsed is not None:
            kept["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name or "unnamed", "arguments": _arguments_text(one)},
                }
                for call, one in zip(parsed.calls, given, strict=True)
            ]
        elif kept.get("content") is None:
            kept["content"] = ""  # a message of nothing at all is refused by many servers
        self._messages.append(kept)


def _text(content: Any) -> str:
    """The text of a message's content, which may be None or a list of blocks."""
    if isinstance(content, list):
        blocks = [cast("dict[str, Any]", block) for block in cast("list[Any]", content) if isinstance(block, dict)]
        return "".join(str(block.get("text", "")) for block in blocks)
    return content if isinstance(content, str) else ""


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _arguments(call: Any) -> Any:
    function: Any = cast("dict[str, Any]", call).get("function") if isinstance(call, dict) else None
    return cast("dict[str, Any]", function).get("arguments") if isinstance(function, dict) else None


def _with_object(call: Any) -> Any:
    """The call with its arguments read, where they are JSON text; as it is, where they are not."""
    text = _arguments(call)
    if not isinstance(text, str):
        return call
    try:
        arguments: Any = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _arguments_text(call: Any) -> str:
    """Arguments as JSON text of an object: servers read those of earlier calls again, and fail where they cannot."""
    arguments = _arguments(_with_object(call))
    return json.dumps(arguments if isinstance(arguments, dict) else {"invalid": arguments}, default=str)


def _not_json(call: ToolCall, text: str) -> ToolCall:
    try:
        json.loads(text)
        problem = "must be a JSON object"
    except (ValueError, RecursionError) as error:
        problem = f"are no JSON ({error})"
    return replace(call, arguments={}, action=None, problem=f"Error: the arguments of '{call.name}' {problem}.")
