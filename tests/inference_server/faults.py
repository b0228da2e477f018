"""Faults on request, so that a test needs no chance and no clock to see one.

POST /faults {"fail_next": 3, "status": 503}   the next three generations are refused with that status
POST /faults {"drop_next": 1}                  the next one's connection is closed without an answer
POST /faults {"garble_next": 1}                the next one's answer is not JSON
POST /faults {"delay_s": 0.5}                  every generation waits so long before it is sampled
POST /faults {"hold": true}                    generations wait until {"hold": false}; GET /faults says how many do
POST /faults {"unhealthy": true}               /health answers 503
POST /faults {}                                all faults end
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict

GENERATING = ("/v1/completions", "/v1/chat/completions", "/generate", "/completion", "/completions")


class FaultSettings(BaseModel):
    """What is to go wrong; what is not named goes right."""

    model_config = ConfigDict(extra="forbid")

    fail_next: int = 0
    status: int = 503
    retry_after_s: float | None = None
    drop_next: int = 0
    garble_next: int = 0
    delay_s: float = 0.0
    hold: bool = False
    unhealthy: bool = False


class Faults:
    """ASGI middleware in front of the routes that generate."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let the request through, or do to it what is asked."""
        path = scope.get("path")
        if scope["type"] != "http" or path not in (*GENERATING, "/health"):
            await self.app(scope, receive, send)
            return
        state = scope["app"].state.faults
        settings: FaultSettings = state.settings
        if path == "/health":
            if settings.unhealthy:
                await Response(status_code=503)(scope, receive, send)
                return
            await self.app(scope, receive, send)
            return
        state.requests += 1
        if settings.drop_next > 0:
            settings.drop_next -= 1
            raise ConnectionAbortedError("dropped on request")  # uvicorn closes the connection
        if settings.fail_next > 0:
            settings.fail_next -= 1
            headers = {} if settings.retry_after_s is None else {"retry-after": f"{settings.retry_after_s:g}"}
            body = f'{{"error": {{"message": "refused on request", "code": {settings.status}}}}}'
            refusal = Response(body, settings.status, headers, media_type="application/json")
            await refusal(scope, receive, send)
            return
        if settings.garble_next > 0:
            settings.garble_next -= 1
            await Response("<html>no json</html>", media_type="text/html")(scope, receive, send)
            return
        await state.wait()
        await self.app(scope, receive, send)


class FaultState:
    """The faults that are set, and who waits for them to end."""

    def __init__(self) -> None:
        self.settings = FaultSettings()
        self.requests = 0
        self.held = 0
        self._changed = asyncio.Event()

    def set(self, settings: FaultSettings) -> None:
        """Replace what is to go wrong."""
        self.settings = settings
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """The delay, and then the hold."""
        if self.settings.delay_s:
            await asyncio.sleep(self.settings.delay_s)
        self.held += 1
        try:
            while self.settings.hold:
                await self._changed.wait()
        finally:
            self.held -= 1


def add_fault_routes(app: FastAPI) -> None:
    """``/faults``: set them, and look at them."""
    app.state.faults = FaultState()
    app.add_middleware(Faults)

    @app.post("/faults")
    async def set_faults(settings: FaultSettings) -> dict[str, Any]:
        app.state.faults.set(settings)
        return settings.model_dump()

    @app.get("/faults")
    async def get_faults(request: Request) -> dict[str, Any]:
        state: FaultState = request.app.state.faults
        return {**state.settings.model_dump(), "held": state.held, "requests": state.requests}
