"""What a server is: ``/health``, ``/schema``, ``/metadata``, ``/promises``, ``/list_environments``.

No session is touched.
"""

from __future__ import annotations

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from openenv_trl.errors import EnvironmentFactoryError
from openenv_trl.server.arguments import EnvironmentModels
from openenv_trl.server.host import SessionHost
from openenv_trl.types import EnvironmentMetadata
from openenv_trl.wire.codec import encode


def install_descriptive_routes(app: FastAPI) -> None:
    """Add the routes to an application. Its state has what they tell, from ``session_host`` to ``is_repeatable``."""
    host: SessionHost = app.state.session_host
    models: EnvironmentModels = app.state.models
    schema: list[bytes] = []

    # A plain Response: FastAPI would import pydantic's version 1 to look at any other return type.
    async def health() -> Response:
        """Whether the server is up. No environment is touched."""
        return Response(b'{"status":"healthy"}', media_type="application/json")

    async def get_schema() -> Response:
        """The JSON Schemas of action, observation and state."""
        if not schema:
            schemas = {
                "action": models.action_cls.model_json_schema(),
                "observation": models.observation_cls.model_json_schema(),
                "state": models.state_cls.model_json_schema(),
                "reset_observation": models.reset_observation_cls.model_json_schema(),
            }
            schema.append(encode(schemas))
        return Response(schema[0], media_type="application/json")

    async def metadata() -> Response:
        """What the environment says of itself."""
        try:
            found: EnvironmentMetadata = await host.metadata()
        except EnvironmentFactoryError as error:
            return JSONResponse({"detail": str(error)}, status_code=500)
        return Response(encode(found.model_dump()), media_type="application/json")

    async def promises() -> Response:
        """What the environment's class declares of its episodes."""
        return Response(encode({"repeatable": app.state.is_repeatable}), media_type="application/json")

    async def list_environments() -> Response:
        """The names of the environments that are served: one."""
        return Response(encode([app.state.env_name]), media_type="application/json")

    app.add_api_route("/health", health, methods=["GET"])
    app.add_api_route("/schema", get_schema, methods=["GET"])
    app.add_api_route("/metadata", metadata, methods=["GET"])
    app.add_api_route("/promises", promises, methods=["GET"])
    app.add_api_route("/list_environments", list_environments, methods=["GET"])
