"""Bodies of HTTP requests: read within a limit and checked, each mistake answered in FastAPI's words for it."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from fastapi import Request, Response
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    DeadlineExceededError,
    OpenEnvError,
    SessionCapacityError,
)
from openenv_trl.wire.codec import decode, encode

Body = TypeVar("Body", bound=BaseModel)

_MISSING: dict[str, Any] = {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}


class BodyError(Exception):
    """A body that cannot be used.

    Attributes:
        response: The answer to it.
    """

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(detail)
        self.response = json_response({"detail": detail}, status)


async def read_body(request: Request, limit: int) -> bytes:
    """Return a request's body.

    Raises:
        BodyError: It is longer than the limit, or its sender is gone.
    """
    body = bytearray()  # and no list of parts: a body sent byte by byte would cost fifty times its length
    try:
        async for part in request.stream():
            body += part
            if len(body) > limit:
                raise BodyError(413, f"The body is longer than {limit} bytes.")
    except ClientDisconnect as error:
        raise BodyError(400, "The body ended before its end.") from error
    return bytes(body)


async def parse_body(request: Request, model: type[Body], limit: int, *, default: bytes = b"") -> Body:
    """Return a request's body as a model.

    Args:
        request: The request.
        model: What it must fit.
        limit: The longest body, in bytes.
        default: What an empty body stands for; nothing, if empty.

    Raises:
        BodyError: It is too long, no JSON, or does not fit.
    """
    text = await read_body(request, limit) or default
    if not text:
        raise BodyError(422, [_MISSING])
    try:
        return model.model_validate(decode(text), from_attributes=True)
    except json.JSONDecodeError as error:
        item: dict[str, Any] = {
            "type": "json_invalid",
            "loc": ["body", error.pos],
            "msg": "JSON decode error",
            "input": {},
        }
        raise BodyError(422, [{**item, "ctx": {"error": error.msg}}]) from error
    except ValidationError as error:
        items = error.errors(include_url=False)
        raise BodyError(422, [{**item, "loc": ["body", *item["loc"]]} for item in items]) from error


def json_response(content: Any, status: int = 200) -> Response:
    """Return an answer in JSON.

    Raises:
        TypeError: The content holds something that JSON cannot express.
    """
    return Response(encode(content), status, media_type="application/json")


def error_response(error: OpenEnvError) -> Response:
    """Return the answer to a request that an environment or its session failed."""
    if isinstance(error, ActionValidationError):
        return json_response({"detail": error.errors or [_of_environment(error)]}, 422)
    if isinstance(error, ConfigurationError):
        return json_response({"detail": [{"type": "value_error", "loc": ["body"], "msg": str(error)}]}, 422)
    if isinstance(error, DeadlineExceededError):
        return json_response({"detail": str(error)}, 504)
    status = 503 if isinstance(error, SessionCapacityError) else 500
    return json_response({"detail": str(error)}, status)


def _of_environment(error: ActionValidationError) -> dict[str, Any]:
    return {"type": "value_error", "loc": ["action"], "msg": str(error)}
