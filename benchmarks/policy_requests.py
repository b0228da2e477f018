"""What a generation's HTTP request costs the process that trains: this package's connections beside httpx's.

A server in a process of its own takes 100 ms for every request and answers with 64 token ids and log-probs, as vLLM
would. So many requests of 500 ids go out at once, round after round over kept connections: through ``VllmPolicy``,
through one httpx client, and through 32 of them in turn. Seconds of CPU of this process, and wall-clock seconds.

    python benchmarks/policy_requests.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import anyio
import httpx
from _record import Target, record, spread

from openenv_trl.rollout import Completion, SamplingParameters
from openenv_trl.rollout.policies import VllmPolicy

REQUESTS = (16, 64, 256)
PROMPT = list(range(500))
CHOICE = {
    "index": 0,
    "text": "",
    "finish_reason": "length",
    "token_ids": list(range(64)),
    "logprobs": {"token_logprobs": [-1.25] * 64},
}
ANSWER = json.dumps({"choices": [CHOICE]}).encode()


def serve(listener: socket.socket) -> None:
    """Answer every request after 100 ms."""
    import uvicorn

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        await asyncio.sleep(0.1)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": ANSWER})

    uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_keep_alive=300)).run(
        sockets=[listener]
    )


async def measure(ask: Callable[[int], Awaitable[None]], count: int, rounds: int) -> dict[str, Any]:
    """Seconds of the rounds after the first, which opens the connections."""
    wall, cpu = list[float](), list[float]()
    for _ in range(rounds + 1):
        began, used = time.perf_counter(), time.process_time()
        await ask(count)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    return {"wall_s": spread(wall[1:]), "cpu_s": spread(cpu[1:])}


async def compare(url: str, rounds: int) -> dict[str, Any]:
    """All ways, at all numbers of requests."""
    policy = VllmPolicy(url, "model", max_model_length=4096)
    sampling = SamplingParameters(max_new_tokens=64)

    async def ours(count: int) -> None:
        found = await policy.generate([PROMPT] * count, sampling)
        assert all(isinstance(one, Completion) for one in found), found[0]

    def by_httpx(clients: list[httpx.AsyncClient]) -> Callable[[int], Awaitable[None]]:
        body = json.dumps({"model": "model", "prompt": PROMPT, "max_tokens": 64}).encode()

        async def one(index: int) -> None:
            client = clients[index % len(clients)]
            answer = await client.post(url + "/v1/completions", content=body)
            assert len(json.loads(answer.content)["choices"][0]["token_ids"]) == 64

        async def ask(count: int) -> None:
            async with anyio.create_task_group() as group:
                for index in range(count):
                    group.start_soon(one, index)

        return ask

    results: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(policy.opened())
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=512)
        ways: dict[str, Callable[[int], Awaitable[None]]] = {"vllm_policy": ours}
        for name, clients in (("httpx_one_client", 1), ("httpx_32_clients", 32)):
            opened = [
                await stack.enter_async_context(httpx.AsyncClient(timeout=60, limits=limits, trust_env=False))
                for _ in range(clients)
            ]
            ways[name] = by_httpx(opened)
        for count in REQUESTS:
            results[str(count)] = {name: await measure(ask, count, rounds) for name, ask in ways.items()}
    return results


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = multiprocessing.get_context("spawn").Process(target=serve, args=(listener,), daemon=True)
        server.start()
        try:
            results = anyio.run(compare, url, rounds)
        finally:
            server.kill()
            server.join()
    most = results[str(max(REQUESTS))]
    ours, theirs = most["vllm_policy"]["cpu_s"]["median"], most["httpx_32_clients"]["cpu_s"]["median"]
    record(
        "policy_requests",
        results,
        [
            Target("256 requests at once, seconds of CPU", ours, "< 0.2"),
            Target("256 requests at once, CPU of 32 httpx clients beside ours", round(theirs / ours, 2), ">= 3"),
        ],
        ["httpx", "httptools", "anyio"],
    )


if __name__ == "__main__":
    main()
