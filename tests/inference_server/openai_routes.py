"""What vLLM's OpenAI-compatible server speaks: completions of token ids, and chat completions with tools."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from typing import Any

from fastapi import FastAPI, HTTPException
from generating import Aborted, Answer, ModelThread, Request
from pydantic import BaseModel, ConfigDict


class Sampled(BaseModel):
    """The sampling parameters that both routes take. Fields that this server does not know are refused."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    max_tokens: int | None = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    n: int = 1
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    stream: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    user: str | None = None

    def requests(self, prompt_ids: list[int], thread: ModelThread, max_tokens: int | None) -> list[Request]:
        """The rows that this asks for, ``n`` of them."""
        room = thread.max_length - len(prompt_ids)
        if room < 1 or (max_tokens is not None and max_tokens > room):
            raise HTTPException(
                400,
                f"This model's maximum context length is {thread.max_length} tokens; the request has "
                f"{len(prompt_ids)} prompt tokens and asks for {max_tokens} more.",
            )
        if self.stream or self.repetition_penalty != 1.0:
            raise HTTPException(400, "This server neither streams nor penalises repetition.")
        return [
            Request(
                prompt_ids,
                room if max_tokens is None else max_tokens,
                self.temperature,
                self.top_p,
                self.top_k,
                self.min_p,
                None if self.seed is None else self.seed + copy,
                frozenset(self.stop_token_ids or ()),
                self.ignore_eos,
            )
            for copy in range(self.n)
        ]


class CompletionBody(Sampled):
    """``POST /v1/completions``."""

    prompt: str | list[int] | list[list[int]] | list[str]
    logprobs: int | None = None
    echo: bool = False


class ChatBody(Sampled):
    """``POST /v1/chat/completions``."""

    messages: list[dict[str, Any]]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str = "auto"
    parallel_tool_calls: bool = True
    logprobs: bool = False
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None


def add_openai_routes(app: FastAPI, thread: ModelThread, *, logprobs_mode: str, model_name: str) -> None:
    """The routes, over a model."""
    tokenizer = thread.tokenizer

    def of_mode(answer: Answer) -> list[float]:
        return answer.raw if logprobs_mode == "raw_logprobs" else answer.processed

    def token_text(token: int, as_id: bool) -> str:
        return f"token_id:{token}" if as_id else tokenizer.decode([token])

    def check_model(name: str | None) -> None:
        if name is not None and name != model_name:
            raise HTTPException(404, f"The model `{name}` does not exist.")

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {
            "object": "list",
            "data": [{"id": model_name, "object": "model", "owned_by": "vllm", "max_model_len": thread.max_length}],
        }

    @app.post("/v1/completions")
    async def completions(body: CompletionBody) -> dict[str, Any]:
        check_model(body.model)
        given: Any = body.prompt
        many = given if isinstance(given, list) and given and not isinstance(given[0], int) else [given]
        prompts = [tokenizer.encode(p) if isinstance(p, str) else list(p) for p in many]
        if not prompts or not all(prompts):
            raise HTTPException(400, "The prompt is empty.")
        rows = [row for ids in prompts for row in body.requests(ids, thread, body.max_tokens)]
        answers = await answers_of(thread, rows)
        choices: list[dict[str, Any]] = []
        for index, (row, answer) in enumerate(zip(rows, answers, strict=True)):
            logprobs = None
            if body.logprobs is not None:
                values = of_mode(answer)
                tokens = [token_text(token, body.return_tokens_as_token_ids) for token in answer.ids]
                top = [{text: value} for text, value in zip(tokens, values, strict=True)]
                logprobs = {"tokens": tokens, "token_logprobs": values, "top_logprobs": top, "text_offset": []}
            choice: dict[str, Any] = {
                "index": index,
                "text": tokenizer.decode(answer.ids, skip_special_tokens=body.skip_special_tokens),
                "logprobs": logprobs,
                "finish_reason": answer.finish_reason,
                "stop_reason": answer.stop_id if answer.stop_id in (body.stop_token_ids or ()) else None,
            }
            if body.return_token_ids:
                choice |= {"token_ids": answer.ids, "prompt_token_ids": row.prompt_ids}
            choices.append(choice)
        return envelope("cmpl", "text_completion", model_name, choices, prompts, answers)

    @app.post("/v1/chat/completions")
    async def chat(body: ChatBody) -> dict[str, Any]:
        check_model(body.model)
        try:
            prompt_ids = tokenizer.apply_chat_template(
                _plain(body.messages),
                tools=body.tools if body.tool_choice != "none" else None,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
                **(body.chat_template_kwargs or {}),
            )
        except Exception as error:
            raise HTTPException(400, f"The chat template refused the messages: {error}") from error
        room = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
        answers = await answers_of(thread, body.requests(list(prompt_ids), thread, room))
        choices: list[dict[str, Any]] = []
        for index, answer in enumerate(answers):
            message = _message(tokenizer, prompt_ids, answer, bool(body.tools))
            logprobs = None
            if body.logprobs:
                pairs = zip(answer.ids, of_mode(answer), strict=True)
                logprobs = {
                    "content": [
                        {
                            "token": token_text(token, body.return_tokens_as_token_ids),
                            "logprob": value,
                            "bytes": list(tokenizer.decode([token]).encode()),
                            "top_logprobs": [],
                        }
                        for token, value in pairs
                    ]
                }
            calls = answer.finish_reason == "stop" and bool(message["tool_calls"])
            choice: dict[str, Any] = {
                "index": index,
                "message": message,
                "logprobs": logprobs,
                "finish_reason": "tool_calls" if calls else answer.finish_reason,
            }
            if body.return_token_ids:
                choice["token_ids"] = answer.ids
            choices.append(choice)
        found = envelope("chatcmpl", "chat.completion", model_name, choices, [prompt_ids], answers)
        return {**found, "prompt_token_ids": prompt_ids} if body.return_token_ids else found


async def answers_of(thread: ModelThread, rows: list[Request]) -> list[Answer]:
    """Sample all rows; one who hangs up takes what was not begun out of the queue."""
    futures = thread.submit(rows)
    try:
        return list(await asyncio.gather(*(asyncio.wrap_future(future) for future in futures)))
    except Aborted as error:
        raise HTTPException(503, str(error)) from error
    finally:
        for future in futures:
            future.cancel()


def envelope(
    prefix: str, kind: str, model: str, choices: list[Any], prompts: list[list[int]], answers: list[Answer]
) -> dict[str, Any]:
    """The answer round the choices."""
    read, written = sum(map(len, prompts)), sum(len(answer.ids) for answer in answers)
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as templates take them: the arguments of earlier calls as objects, not as JSON text."""
    plain: list[dict[str, Any]] = []
    for message in messages:
        calls = message.get("tool_calls")
        if calls:
            calls = [
                {**call, "function": {**call["function"], "arguments": _object(call["function"].get("arguments"))}}
                for call in calls
            ]
            message = {**message, "tool_calls": calls}
        plain.append(message)
    return plain


def _object(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _message(tokenizer: Any, prompt_ids: list[int], answer: Answer, tools: bool) -> dict[str, Any]:
    text = tokenizer.decode(answer.ids, skip_special_tokens=True)
    plain: dict[str, Any] = {"role": "assistant", "content": text, "tool_calls": []}
    if not tools:
        return plain
    try:
        parsed = tokenizer.parse_response(answer.ids, prefix=prompt_ids)
        calls = [
            {
                "id": f"call_{uuid.uuid4().hex[:12]}",
                "type": "function",
                "function": {
                    "name": call["function"]["name"],
                    "arguments": json.dumps(call["function"].get("arguments", {})),
                },
            }
            for call in parsed.get("tool_calls") or []
        ]
    except Exception:  # whatever the model wrote that is no message with calls is a message without
        return plain
    return {"role": "assistant", "content": parsed.get("content") or None, "tool_calls": calls} if calls else plain
