"""``/metrics`` of a server with several workers: one page, where each number says whose it is.

Whoever is asked asks the others, and labels each sample with ``worker``. What is true of the whole server (how many
sessions, their limit, the environment) stands there once, without.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answer = Callable[[int, Message, Receive, Send], Awaitable[Any]]

PATH = "/metrics"

_OF_THE_SERVER = ("openenv_sessions_active", "openenv_sessions_limit", "openenv_environment_info")
_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


async def answer_for_all(scope: Message, send: Send, workers: Iterable[int], answer: Answer) -> None:
    """Answer a scrape with the pages of all workers in one.

    Args:
        scope: The request's ASGI scope.
        send: The way to who asked.
        workers: Whom to ask.
        answer: Has a worker answer the scope's request.
    """
    pages: dict[int, str] = {}
    plain: Message = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"accept"]}

    async def ask(worker: int) -> None:
        collected = _Collected()
        # A copy for each: whoever answers may change it.
        await answer(worker, dict(plain), collected.receive, collected.send)
        if collected.status == 200:
            pages[worker] = collected.body.decode()

    async with anyio.create_task_group() as tasks:
        for worker in workers:
            tasks.start_soon(ask, worker)
    page = merge_pages(pages)
    headers = [(b"content-type", _CONTENT_TYPE), (b"content-length", str(len(page)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": page})


def merge_pages(pages: Mapping[int, str]) -> bytes:
    """Return one page in Prometheus' text format of those of the workers."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.parser import text_string_to_metric_families

    merged: dict[str, Metric] = {}
    for worker, page in sorted(pages.items()):
        for family in text_string_to_metric_families(page):
            whole = family.name in _OF_THE_SERVER
            if not whole:
                labelled = [each._replace(labels={**each.labels, "worker": str(worker)}) for each in family.samples]
                family.samples = labelled
            known = merged.setdefault(family.name, family)
            if known is not family and not whole:
                known.samples += family.samples

    class _Merged:
        def collect(self) -> Iterable[Metric]:
            return merged.values()

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged())  # pyright: ignore[reportArgumentType] - anything that can collect
    return generate_latest(registry)


class _Collected:
    """A response, kept; and the empty request that it answers."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self._asked = False

    async def receive(self) -> Message:
        if self._asked:
            await anyio.sleep_forever()
        self._asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
