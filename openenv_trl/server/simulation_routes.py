"""``/reset``, ``/step`` and ``/state`` over HTTP: each call on an environment of its own, which is gone after it.

So a step never sees an earlier reset: these routes are for looking at an environment, not for playing an episode, which
takes a WebSocket. They are answered beside the sessions, outside their limit, as many at once as there may be sessions;
the others wait.
"""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request, Response

from openenv_trl.errors import OpenEnvError
from openenv_trl.server.host import SessionHost
from openenv_trl.server.http_bodies import BodyError, error_response, json_response, parse_body
from openenv_trl.types import Observation
from openenv_trl.wire.http_models import ResetRequest, StepRequest
from openenv_trl.wire.observations import serialize_observation

logger = logging.getLogger("openenv_trl.server")


def install_simulation_routes(app: FastAPI) -> None:
    """Add the routes to an application whose state has ``session_host`` and ``settings``."""
    host: SessionHost = app.state.session_host
    limit: int = app.state.settings.max_message_bytes

    async def reset(request: Request) -> Response:
        """Begin an episode in an environment of its own, and show its first observation."""
        try:
            body = await parse_body(request, ResetRequest, limit, default=b"{}")
            async with host.temporary() as session:
                return _answer(await session.reset(body.model_dump(exclude_unset=True)), "reset was done")
        except BodyError as error:
            return error.response
        except OpenEnvError as error:
            return error_response(error)

    async def step(request: Request) -> Response:
        """Take one step in an environment of its own that was just built."""
        try:
            body = await parse_body(request, StepRequest, limit)
            arguments = body.model_dump(exclude_unset=True, exclude={"action"})
            async with host.temporary() as session:
                observation = await session.step(body.action, deadline_s=body.timeout_s, arguments=arguments)
                return _answer(observation, "step was taken")
        except BodyError as error:
            return error.response
        except OpenEnvError as error:
            return error_response(error)

    async def state() -> Response:
        """Show the state of an environment of its own that was just built."""
        try:
            async with host.temporary() as session:
                return json_response(await session.state())
        except TypeError as error:
            return _unsendable("state was read", error)
        except OpenEnvError as error:
            return error_response(error)

    app.add_api_route("/reset", reset, methods=["POST"], openapi_extra=_body_of(ResetRequest, required=False))
    app.add_api_route("/step", step, methods=["POST"], openapi_extra=_body_of(StepRequest, required=True))
    app.add_api_route("/state", state, methods=["GET"])


def _answer(observation: Observation, what: str) -> Response:
    try:
        data = serialize_observation(observation)
        reward = data["reward"]
        return json_response(
            {
                "observation": data["observation"],
                "reward": None if reward is None else float(reward),
                "done": data["done"],
                "metadata": data.get("metadata"),
            }
        )
    except Exception as error:  # boundary: pydantic serializers are the environment author's code
        return _unsendable(what, error)


def _unsendable(what: str, error: Exception) -> Response:
    text = f"The {what}, but its result cannot be sent as JSON: {error}. The fault is the environment's."
    logger.error("%s", text)
    return json_response({"detail": text}, 500)


def _body_of(model: type[ResetRequest | StepRequest], *, required: bool) -> dict[str, Any]:
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": required, "content": content}}
