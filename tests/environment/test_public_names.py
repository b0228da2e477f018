"""The names that environment packages import from the public package are here, each in the one place to import from."""

from __future__ import annotations

import subprocess
import sys

import pytest

import openenv_trl
from openenv_trl import env_server

PUBLIC = [
    "Environment",
    "Transform",
    "TaskProvider",
    "Message",
    "ModelTokenizer",
    "Action",
    "Observation",
    "State",
    "SchemaResponse",
    "HealthResponse",
    "ListTasksRequest",
    "NumTasksRequest",
    "GetTaskRequest",
    "GetTaskRangeRequest",
    "HealthStatus",
    "ServerMode",
    "WSErrorCode",
    "BaseMessage",
    "WSIncomingMessage",
    "WSResetMessage",
    "WSStepMessage",
    "WSStateMessage",
    "WSCloseMessage",
    "WSObservationResponse",
    "WSStateResponse",
    "WSErrorResponse",
    "ConcurrencyConfig",
    "ServerCapacityStatus",
    "SessionInfo",
    "OpenEnvError",
    "ConcurrencyConfigurationError",
    "SessionCapacityError",
    "SessionNotFoundError",
    "SessionCreationError",
    "EnvironmentFactoryError",
    "CompositeTransform",
    "NullTransform",
    "HTTPEnvServer",
    "create_app",
    "create_fastapi_app",
    "deserialize_action",
    "serialize_observation",
    "Tool",
    "ToolError",
    "ToolErrorType",
    "ListToolsAction",
    "CallToolAction",
    "ListToolsObservation",
    "CallToolObservation",
    "WSMCPMessage",
    "WSMCPResponse",
    "RESERVED_TOOL_NAMES",
    "MCPEnvironment",
    "JsonRpcErrorCode",
    "JsonRpcError",
    "JsonRpcRequest",
    "JsonRpcResponse",
    "McpMethod",
    "ResetRequest",
    "ResetResponse",
    "StepRequest",
    "StepResponse",
    "EnvironmentMetadata",
    "CodeExecResult",
    "StepResult",
    "Rubric",
    "Sequential",
    "Gate",
    "WeightedSum",
    "RubricList",
    "RubricDict",
    "TrajectoryRubric",
    "ExponentialDiscountingTrajectoryRubric",
]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_here(name: str) -> None:
    assert getattr(env_server, name) is getattr(openenv_trl, name)
    assert name in env_server.__all__
    assert name in openenv_trl.__all__


def test_every_name_that_is_listed_can_be_imported() -> None:
    for name in env_server.__all__:
        getattr(env_server, name)


def test_what_is_not_offered_says_what_to_use() -> None:
    with pytest.raises(AttributeError, match="a session of their own"):
        env_server.WebInterfaceManager  # noqa: B018


def test_an_environments_names_import_no_server() -> None:
    code = (
        "import sys\nfrom openenv_trl.env_server import Environment, MCPEnvironment, Rubric, Transform, State\n"
        "heavy = ('fastapi', 'uvicorn', 'anyio', 'mcp', 'fastmcp', 'websockets')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
