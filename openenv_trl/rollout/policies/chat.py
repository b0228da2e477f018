"""A policy over any OpenAI-compatible chat endpoint: messages and tools in, a message out.

For evaluation and for collecting: what the endpoint samples is not known as tokens, so its trajectories are marked as
not token-exact, and trainers refuse them. Source: OpenAI's chat completions reference.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal, cast
from urllib.parse import urlsplit

from openenv_trl.rollout.policies.endpoint import Endpoint, RequestRefused
from openenv_trl.rollout.policies.settings import EndpointSettings
from openenv_trl.rollout.policy import FailedCompletion, Reply, SamplingParameters
from openenv_trl.rollout.task import Message
from openenv_trl.rollout.tool_schema import tool_definition
from openenv_trl.types import Tool

LimitField = Literal["max_tokens", "max_completion_tokens"]


class ChatPolicy:
    """Asks ``POST /chat/completions``.

    A thinking model's thoughts (``reasoning_content`` or ``reasoning``) are kept in the trajectory's messages; they
    are sent back only where the endpoint asks for that.

    Args:
        base_url: The endpoint's address, or those of several with the same model. Without a path, ``/v1`` is added:
            ``http://localhost:8000`` and ``http://localhost:8000/v1`` are the same.
        model: The model's name there.
        seed: Sent with each request; endpoints keep to it as well as they can. None sends none.
        send_reasoning: Whether the model's earlier thoughts are sent back with its messages.
        limit_field: What the endpoint calls the limit of tokens. None tries ``max_tokens``, and the other where the
            endpoint says so.
        extra_body: More fields of each request, such as ``{"top_k": -1, "chat_template_kwargs": {...}}`` for vLLM.
        settings: Connections, deadlines, patience and credentials.

    Raises:
        ConfigurationError: An address is none.

    Example:
        >>> policy = ChatPolicy("https://api.example.com/v1", "some-model", settings=EndpointSettings(api_key=key))
        >>> report = evaluate("some-model", policy, None, environment_urls, tasks)
    """

    concurrent: ClassVar[bool] = True
    token_exact: ClassVar[bool] = False

    def __init__(
        self,
        base_url: str | Sequence[str],
        model: str,
        *,
        seed: int | None = None,
        send_reasoning: bool = False,
        limit_field: LimitField | None = None,
        extra_body: dict[str, Any] | None = None,
        settings: EndpointSettings | None = None,
    ) -> None:
        given = [base_url] if isinstance(base_url, str) else list(base_url)
        self.endpoint = Endpoint([_with_version(url) for url in given], settings)
        self.model = model
        self._seed = seed
        self._send_reasoning = send_reasoning
        self._limit_field: LimitField | None = limit_field
        self._extra_body = dict(extra_body or {})

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None, None]:
        """Keep connections for the block; the engine does so for each run."""
        async with self.endpoint.opened():
            yield

    async def aclose(self) -> None:
        """Close the idle connections of this event loop."""
        await self.endpoint.aclose()

    async def respond(
        self, messages: Sequence[Message], tools: Sequence[Tool], sampling: SamplingParameters
    ) -> Reply | FailedCompletion:
        """The model's next message. See `openenv_trl.rollout.MessagePolicy`.

        Raises:
            ConfigurationError: The endpoint refuses the credentials or does not know the model.
            PolicyError: It could not be reached for longer than ``away_timeout_s``.
        """
        body = self._body(messages, tools, sampling)
        try:
            found = await self._ask(body, sampling.max_new_tokens)
        except RequestRefused as error:
            return FailedCompletion(str(error), retryable=error.retryable)
        choices: Any = found.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return FailedCompletion(f"the endpoint's answer has no choices: {found!r:.200}")
        choice = cast("dict[str, Any]", choices[0])
        message: Any = choice.get("message")
        reason: Any = choice.get("finish_reason")
        if not isinstance(message, dict) or reason in ("content_filter", "error", "abort"):
            return FailedCompletion(f"the endpoint gave no message ({reason})", retryable=reason != "content_filter")
        usage: Any = found.get("usage")
        tokens: Any = cast("dict[str, Any]", usage).get("completion_tokens") if isinstance(usage, dict) else None
        return self._reply(cast("dict[str, Any]", message), reason != "length", tokens)

    def _reply(self, message: dict[str, Any], finished: bool, tokens: Any) -> Reply:
        content: Any = message.get("content")
        kept: dict[str, Any] = {"role": "assistant", "content": message.get("refusal") if content is None else content}
        calls: Any = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            kept["tool_calls"] = calls
        name = next((name for name in ("reasoning_content", "reasoning") if message.get(name)), None)
        reasoning = "" if name is None else message[name]
        if name is not None and self._send_reasoning:
            kept[name] = reasoning
        return Reply(kept, finished, tokens if isinstance(tokens, int) else None, str(reasoning))

    def _body(self, messages: Sequence[Message], tools: Sequence[Tool], sampling: SamplingParameters) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "temperature": 0.0 if sampling.greedy else sampling.temperature,
            "top_p": 1.0 if sampling.greedy else sampling.top_p,
        }
        if tools:
            body["tools"] = [tool_definition(tool) for tool in tools]
        # These two are no fields of OpenAI's, whose own endpoint refuses them: sent only where they say something.
        if not sampling.greedy and sampling.top_k > 0:
            body["top_k"] = sampling.top_k
        if not sampling.greedy and sampling.min_p:
            body["min_p"] = sampling.min_p
        if self._seed is not None:
            body["seed"] = self._seed
        return body | self._extra_body

    async def _ask(self, body: dict[str, Any], limit: int) -> dict[str, Any]:
        first: LimitField = self._limit_field or "max_tokens"
        try:
            return await self.endpoint.post("/chat/completions", {first: limit, **body})
        except RequestRefused as error:
            if self._limit_field is not None or error.status != 400 or "max_completion_tokens" not in str(error):
                raise
        found = await self.endpoint.post("/chat/completions", {"max_completion_tokens": limit, **body})
        self._limit_field = "max_completion_tokens"
        return found


def _with_version(url: str) -> str:
    url = url.strip().rstrip("/")
    return url if urlsplit(url).path else f"{url}/v1"
