"""The tasks that an environment offers: its splits, how many tasks each has, and the tasks themselves.

An environment offers them by methods of the names in `TaskProvider`, synchronous or asynchronous. They are called on
an environment of their own, and never block the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel

from openenv_trl.errors import EnvironmentExecutionError, OpenEnvError
from openenv_trl.server.host import SessionHost
from openenv_trl.server.http_bodies import BodyError, error_response, json_response, parse_body
from openenv_trl.wire.http_models import GetTaskRangeRequest, GetTaskRequest, ListTasksRequest, NumTasksRequest

_KNOWN_SPLITS = ("train", "validation", "test")


def install_task_routes(app: FastAPI) -> None:
    """Add the routes to an application whose state has ``session_host``, ``settings`` and ``env_name``."""
    host: SessionHost = app.state.session_host
    limit: int = app.state.settings.max_message_bytes
    name: str = app.state.env_name

    # The name is no argument of the routes: FastAPI would import pydantic's version 1 to look at its type.
    async def answer(request: Request, method: str, args: tuple[Any, ...], shape: Callable[[Any], Any]) -> Response:
        env_name: str = request.path_params["env_name"]
        if env_name.lower() != name.lower():
            return json_response({"detail": f"unknown environment '{env_name}'"}, 404)
        try:
            async with host.temporary() as session:
                return json_response(shape(await session.call_method(method, *args)))
        except AttributeError:
            return _not_supported(method)
        except EnvironmentExecutionError as error:
            if isinstance(error.__cause__, NotImplementedError):
                return _not_supported(method)
            if isinstance(error.__cause__, IndexError):
                return json_response({"detail": "Invalid task index"}, 400)
            return error_response(error)
        except OpenEnvError as error:
            return error_response(error)
        except TypeError as error:
            return json_response({"detail": f"What {method} returned cannot be sent as JSON: {error}"}, 500)

    def add_route(
        path: str,
        model: type[BaseModel],
        method: str,
        arguments: Callable[[Any], tuple[Any, ...]],
        shape: Callable[[Any], Any],
    ) -> None:
        async def route(request: Request) -> Response:
            try:
                body = await parse_body(request, model, limit)
            except BodyError as error:
                return error.response
            return await answer(request, method, arguments(body), shape)

        app.add_api_route(
            "/{env_name}" + path, route, methods=["POST"], name=method, openapi_extra=_described(method, model)
        )

    async def list_splits(request: Request) -> Response:
        """The parts that the environment's tasks are divided into."""
        return await answer(request, "list_splits", (), lambda splits: [_split(each) for each in splits])

    app.add_api_route("/{env_name}/splits", list_splits, methods=["GET"], openapi_extra={"parameters": [_ENV_NAME]})
    add_route(
        "/tasks",
        ListTasksRequest,
        "list_tasks",
        lambda body: (body.split,),
        lambda tasks: {"tasks": list(tasks), "env_name": name},
    )
    add_route("/num_tasks", NumTasksRequest, "num_tasks", lambda body: (body.split,), lambda n: {"num_tasks": n})
    add_route("/task", GetTaskRequest, "get_task", lambda body: (body.split, body.index), lambda task: {"task": task})
    add_route(
        "/task_range",
        GetTaskRangeRequest,
        "get_task_range",
        lambda body: (body.split, body.start, body.stop),
        lambda tasks: {"tasks": list(tasks)},
    )


_SUMMARIES = {
    "list_tasks": "All tasks of a split",
    "num_tasks": "How many tasks a split has",
    "get_task": "One task of a split",
    "get_task_range": "Some tasks of a split",
}


_ENV_NAME: dict[str, Any] = {"name": "env_name", "in": "path", "required": True, "schema": {"type": "string"}}


def _described(method: str, model: type[BaseModel]) -> dict[str, Any]:
    content = {"application/json": {"schema": model.model_json_schema()}}
    body = {"required": True, "content": content}
    return {"summary": _SUMMARIES[method], "parameters": [_ENV_NAME], "requestBody": body}


def _split(split: Any) -> Any:
    if isinstance(split, str):
        return {"name": split, "type": split if split in _KNOWN_SPLITS else "validation"}
    if isinstance(split, dict | BaseModel):
        return split  # pyright: ignore[reportUnknownVariableType]  # whatever it holds travels as it is
    return {"name": str(split), "type": "validation"}


def _not_supported(method: str) -> Response:
    return json_response({"detail": f"{method} is not supported for this environment"}, 501)
