"""What SGLang and llama.cpp speak natively, and the routes that control a server: pause, weights, numbers."""

from __future__ import annotations

import uuid
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.concurrency import run_in_threadpool
from generating import ModelThread, Request
from openai_routes import answers_of
from pydantic import BaseModel, ConfigDict


class SglangParams(BaseModel):
    """``sampling_params`` of ``POST /generate``."""

    model_config = ConfigDict(extra="forbid")

    max_new_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    sampling_seed: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    no_stop_trim: bool = False


class SglangBody(BaseModel):
    """``POST /generate``."""

    model_config = ConfigDict(extra="forbid")

    input_ids: list[int] | list[list[int]]
    sampling_params: SglangParams | list[SglangParams] = SglangParams()
    return_logprob: bool = False
    logprob_start_len: int = -1
    top_logprobs_num: int = 0
    return_text_in_logprobs: bool = False
    stream: bool = False
    rid: str | None = None


class LlamaBody(BaseModel):
    """``POST /completion``."""

    model_config = ConfigDict(extra="forbid")

    prompt: str | list[int]
    n_predict: int = -1
    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.05
    seed: int = -1
    n_probs: int = 0
    post_sampling_probs: bool = False
    return_tokens: bool = False
    ignore_eos: bool = False
    cache_prompt: bool = True
    stream: bool = False
    samplers: list[str] | None = None
    repeat_penalty: float = 1.0


class WeightsBody(BaseModel):
    """``POST /update_weights_from_disk``."""

    model_config = ConfigDict(extra="forbid")

    model_path: str
    load_format: str | None = None
    weight_version: str | None = None
    flush_cache: bool = True
    abort_all_requests: bool = False


class PauseBody(BaseModel):
    """``POST /pause_generation``."""

    model_config = ConfigDict(extra="forbid")

    mode: str = "abort"


def add_sglang_routes(app: FastAPI, thread: ModelThread) -> None:
    """``/generate`` and SGLang's routes for weights."""

    @app.post("/generate")
    async def generate(body: SglangBody) -> Any:
        given: Any = body.input_ids
        single = bool(given) and isinstance(given[0], int)
        prompts: list[list[int]] = [given] if single else given
        params = body.sampling_params
        each = params if isinstance(params, list) else [params] * len(prompts)
        if len(each) != len(prompts) or not prompts or not all(prompts):
            raise HTTPException(400, "One sampling_params for all prompts or one for each; no prompt may be empty.")
        rows: list[Request] = []
        for ids, p in zip(prompts, each, strict=True):
            if len(ids) >= thread.max_length:
                raise HTTPException(400, f"The input is longer than the context of {thread.max_length} tokens.")
            rows.append(
                Request(
                    ids,
                    min(p.max_new_tokens, thread.max_length - len(ids)),
                    p.temperature,
                    p.top_p,
                    max(p.top_k, 0),
                    p.min_p,
                    p.sampling_seed,
                    frozenset(p.stop_token_ids or ()),
                    p.ignore_eos,
                )
            )
        found: list[dict[str, Any]] = []
        for row, answer in zip(rows, await answers_of(thread, rows), strict=True):
            stopped = answer.finish_reason == "stop"
            meta: dict[str, Any] = {
                "id": body.rid or uuid.uuid4().hex,
                "finish_reason": {"type": "stop", "matched": answer.stop_id}
                if stopped
                else {"type": "length", "length": row.max_tokens},
                "prompt_tokens": len(row.prompt_ids),
                "completion_tokens": len(answer.ids),
                "weight_version": thread.version,
            }
            if body.return_logprob:
                pairs = zip(answer.scaled, answer.ids, strict=True)
                meta["output_token_logprobs"] = [[value, token, None] for value, token in pairs]
            text = thread.tokenizer.decode(answer.ids, skip_special_tokens=True)
            found.append({"text": text, "output_ids": answer.ids, "meta_info": meta})
        return found[0] if single else found

    @app.post("/update_weights_from_disk")
    async def update_weights(body: WeightsBody) -> dict[str, Any]:
        try:
            await run_in_threadpool(thread.load_weights, body.model_path, body.weight_version)
        except (OSError, KeyError, RuntimeError) as error:
            raise HTTPException(400, {"success": False, "message": str(error)}) from error
        return {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}

    @app.post("/pause_generation")
    async def pause_generation(body: PauseBody | None = None) -> dict[str, Any]:
        mode = "abort" if body is None else body.mode
        await run_in_threadpool(thread.pause, "keep" if mode in ("in_place", "retract") else mode)
        return {"message": "Generation paused successfully.", "status": "ok"}

    @app.post("/continue_generation")
    async def continue_generation() -> dict[str, Any]:
        thread.resume()
        return {"message": "Generation continued successfully.", "status": "ok"}

    @app.post("/flush_cache")
    async def flush_cache() -> str:
        return "Cache flushed."


def add_llama_routes(app: FastAPI, thread: ModelThread) -> None:
    """llama.cpp's ``/completion`` and ``/tokenize``."""

    @app.post("/completion")
    @app.post("/completions")
    async def completion(body: LlamaBody) -> dict[str, Any]:
        tokenizer = thread.tokenizer
        ids = tokenizer.encode(body.prompt) if isinstance(body.prompt, str) else body.prompt
        if not ids or len(ids) >= thread.max_length:
            raise HTTPException(400, "The prompt is empty, or exceeds the available context size.")
        room = thread.max_length - len(ids)
        row = Request(
            ids,
            room if body.n_predict < 0 else min(body.n_predict, room),
            max(body.temperature, 0.0),
            body.top_p,
            body.top_k,
            body.min_p,
            None if body.seed < 0 else body.seed,
            ignore_eos=body.ignore_eos,
        )
        (answer,) = await answers_of(thread, [row])
        found: dict[str, Any] = {
            "index": 0,
            "content": tokenizer.decode(answer.ids, skip_special_tokens=True),
            "tokens": answer.ids if body.return_tokens else [],
            "stop": True,
            "stop_type": "eos" if answer.finish_reason == "stop" else "limit",
            "stopping_word": "",
            "tokens_predicted": len(answer.ids),
            "tokens_evaluated": len(ids),
            "truncated": False,
        }
        if body.n_probs:
            kind = answer.processed if body.post_sampling_probs else answer.raw
            found["completion_probabilities"] = [
                _probability(tokenizer, token, value, body.post_sampling_probs)
                for token, value in zip(answer.ids, kind, strict=True)
            ]
        return found

    @app.post("/tokenize")
    async def tokenize(body: dict[str, Any]) -> dict[str, Any]:
        return {"tokens": thread.tokenizer.encode(str(body["content"]))}


def _probability(tokenizer: Any, token: int, logprob: float, sampled: bool) -> dict[str, Any]:
    text = tokenizer.decode([token])
    if sampled:
        from math import exp

        one: dict[str, Any] = {"id": token, "token": text, "bytes": list(text.encode()), "prob": exp(logprob)}
        return {**one, "top_probs": [one]}
    one = {"id": token, "token": text, "bytes": list(text.encode()), "logprob": logprob}
    return {**one, "top_logprobs": [one]}


def add_control_routes(app: FastAPI, thread: ModelThread) -> None:
    """vLLM's pause and resume, what its clients ask before they begin, and this server's own numbers."""

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {}

    @app.post("/pause")
    async def pause(mode: str = "abort") -> dict[str, str]:
        await run_in_threadpool(thread.pause, mode)
        return {"status": "paused"}

    @app.post("/resume")
    async def resume() -> dict[str, str]:
        thread.resume()
        return {"status": "resumed"}

    @app.get("/is_paused")
    async def is_paused() -> dict[str, bool]:
        return {"is_paused": thread.paused}

    @app.get("/get_world_size")
    async def world_size() -> dict[str, int]:
        return {"world_size": 1}

    @app.get("/server_info")
    async def server_info() -> dict[str, Any]:
        return {"vllm_config": {"model_config": {"dtype": "torch.float32"}, "lora_config": None}}

    @app.get("/numbers")
    async def numbers() -> dict[str, Any]:
        return {
            "batches": thread.batches,
            "rows": thread.rows,
            "tokens": thread.tokens,
            "largest_batch": thread.largest_batch,
            "weight_version": thread.version,
        }
