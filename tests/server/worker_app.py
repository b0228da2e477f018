"""An application that says which worker process answers: what several workers do with it needs no environment."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator

import anyio
from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.responses import StreamingResponse

from openenv_trl.server.workers.joining import affinity_of, install_affinity
from openenv_trl.server.workers.place import current_place

app = FastAPI()
place = current_place()
if place is not None:
    install_affinity(app, affinity_of(place), 1_000_000)


@app.websocket("/ws")
async def socket(websocket: WebSocket) -> None:
    await websocket.accept()
    assert websocket.client is not None
    await websocket.send_json({"worker": app.state.worker, "client": list(websocket.client)})
    async for text in websocket.iter_text():
        await websocket.send_text(text)


@app.post("/mcp")
async def call(request: Request) -> Response:
    body = await request.body()
    assert request.client is not None
    answer = {
        "worker": app.state.worker,
        "id": app.state.affinity.new_session_id(),
        "length": len(body),
        "client": request.client.host,
        "header": request.headers.get("mcp-session-id"),
        "query": str(request.query_params),
    }
    headers = {"x-kept": "yes"}
    if json.loads(body).get("method") == "initialize":
        headers["mcp-session-id"] = "0123456789abcdef"
    return Response(json.dumps(answer), status_code=207, headers=headers)


@app.get("/events")
async def events() -> Response:
    async def stream() -> AsyncGenerator[str]:
        try:
            while True:
                yield f"data: {app.state.worker}\n\n"
                await anyio.sleep(0.01)
        finally:
            print(f"stream of worker {app.state.worker} ended", flush=True)

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.get("/die")
async def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
