"""Clients by name, and what one step of each is. Imported in a load process only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from _load import Job

PATIENCE_S = 180.0  # for connections and replies of a server under load


def client(job: Job, number: int) -> Any:
    """Return a client that is not connected yet.

    Args:
        job: What it is for.
        number: Which of the job's sessions it is.
    """
    if job.client in ("websockets", "picows"):
        import _limits

        return (_limits.WebsocketsClient if job.client == "websockets" else _limits.PicowsClient)(job.url)
    options: dict[str, Any] = {"connect_timeout_s": PATIENCE_S, "message_timeout_s": PATIENCE_S}
    if job.wire:
        options["wire"] = job.wire
    if job.connections > 1:
        # Sessions share a connection where all that they say in the handshake is the same.
        options["headers"] = {"X-Connection": str(number % job.connections)}
    return _client_class(job.client)(job.url, **options)


def _client_class(name: str) -> Any:
    if name in ("tool", "call_tool"):
        from served.tool_client import ToolClient

        return ToolClient
    from served import clients

    return {"echo": clients.EchoClient, "frame": clients.FrameClient, "array": clients.ArrayClient}[name]


def step_of(job: Job, session: Any) -> Callable[[], Awaitable[Any]]:
    """Return a function that takes one step: the action is made anew each time, as a policy does.

    With a blocking session it returns the result itself.
    """
    if job.client in ("websockets", "picows"):
        return lambda: session.step("hello")
    if job.client == "call_tool":
        return lambda: session.call_tool("echo", message="hello")
    if job.client == "tool":
        from served.tool_client import CallToolAction

        return lambda: session.step(CallToolAction(tool_name="echo", arguments={"message": "hello"}))
    from served.models import EchoAction, FrameAction

    if job.client == "echo":
        return lambda: session.step(EchoAction(message="hello"))
    return lambda: session.step(FrameAction(button=1))


def check(job: Job, result: Any) -> None:
    """See that a step did what it should.

    Raises:
        AssertionError: It did not.
    """
    if job.client in ("frame", "array"):
        pixels = result.observation.pixels
        assert (pixels.size if job.client == "array" else len(pixels)) == 210 * 160 * 3
    elif job.client == "tool":
        assert result.observation.error is None, result
        assert result.observation.result["data"] == "hello", result
    elif job.client == "call_tool":
        assert result == "hello", result
    elif job.client == "echo":
        assert result.observation.echo == "hello", result
    else:
        assert result["data"]["observation"]["echo"] == "hello", result
