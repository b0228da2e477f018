"""``POST /mcp`` in the public package's dialect: one JSON-RPC request, one response, always with status 200.

A request that speaks the Model Context Protocol proper, which only its body may show, goes to
``app.state.mcp_protocol`` where there is one.
"""

from __future__ import annotations

import json
from typing import Any, cast

from fastapi import FastAPI, Request
from starlette.routing import Route

from openenv_trl.server.access import refusal_of_method
from openenv_trl.server.access_middleware import Message, Receive, Send, role_of
from openenv_trl.server.host import SessionHost
from openenv_trl.server.http_bodies import BodyError, json_response, read_body
from openenv_trl.server.tool_rpc import answer_rpc_without_socket
from openenv_trl.wire.codec import decode
from openenv_trl.wire.rpc import RpcErrorCode, rpc_error


def install_rpc_route(app: FastAPI) -> None:
    """Add the route to an application whose state has ``session_host`` and ``settings``."""
    app.router.routes.append(Route("/mcp", _RpcEndpoint(app), methods=["POST"], include_in_schema=False))


class _RpcEndpoint:
    def __init__(self, app: FastAPI) -> None:
        self._state = app.state

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        host: SessionHost = self._state.session_host
        try:
            body = await read_body(Request(scope, receive), self._state.settings.max_message_bytes)
        except BodyError as error:
            await error.response(scope, receive, send)
            return
        try:
            data: Any = decode(body)
        except json.JSONDecodeError:
            data = None
        protocol = getattr(self._state, "mcp_protocol", None)
        if not isinstance(data, dict):
            answer = rpc_error(None, RpcErrorCode.PARSE_ERROR, "Parse error")
        elif protocol is not None and cast("dict[str, Any]", data).get("method") == "initialize":
            await protocol(scope, _again(body, receive), send)
            return
        else:
            fields = cast("dict[str, Any]", data)
            answer = _not_the_agents(scope, fields) or await answer_rpc_without_socket(host, fields)
        await _response(answer)(scope, receive, send)


def _not_the_agents(scope: Message, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the refusal of a request that an agent's token does not open."""
    given = data.get("params")
    params = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    why = refusal_of_method(role_of(scope), str(data.get("method")), params)
    return None if why is None else rpc_error(data.get("id"), RpcErrorCode.INVALID_REQUEST, why)


def _response(answer: dict[str, Any]) -> Any:
    try:
        return json_response(answer)
    except TypeError as error:
        text = f"The call was made, but its result cannot be sent as JSON: {error}"
        return json_response(rpc_error(answer.get("id"), RpcErrorCode.INTERNAL_ERROR, text))


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body which was read already, and then what else comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again
