"""A package keeps the public package's module paths: each is at `openenv_trl.compat`, with our objects at its names."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from openenv_trl import client, env_server, environment, types
from openenv_trl.client import env_client, sync_client

SERVER = {
    "types": (
        "ServerMode HealthStatus WSErrorCode Action Observation ResetRequest ResetResponse StepRequest StepResponse "
        "BaseMessage State CodeExecResult EnvironmentMetadata SchemaResponse HealthResponse ListTasksRequest "
        "NumTasksRequest GetTaskRequest GetTaskRangeRequest WSIncomingMessage WSResetMessage WSStepMessage "
        "WSStateMessage WSCloseMessage WSObservationResponse WSStateResponse WSErrorResponse ConcurrencyConfig "
        "ServerCapacityStatus SessionInfo"
    ),
    "interfaces": (
        "Message ModelTokenizer TaskProvider Transform Environment Action EnvironmentMetadata Observation State"
    ),
    "http_server": "HTTPEnvServer create_app create_fastapi_app Environment ServerMode State ConcurrencyConfig",
    "mcp_types": (
        "JsonRpcErrorCode McpMethod JsonRpcError JsonRpcRequest JsonRpcResponse Tool ToolErrorType ToolError "
        "ListToolsAction CallToolAction ListToolsObservation CallToolObservation WSMCPMessage WSMCPResponse "
        "RESERVED_TOOL_NAMES Action BaseMessage Observation"
    ),
    "mcp_environment": "MCPEnvironment RESERVED_TOOL_NAMES Environment CallToolAction CallToolObservation Tool",
    "serialization": "deserialize_action serialize_observation Action Observation",
    "base_transforms": "CompositeTransform NullTransform Transform Observation",
    "exceptions": (
        "OpenEnvError ConcurrencyConfigurationError SessionCapacityError SessionNotFoundError SessionCreationError "
        "EnvironmentFactoryError"
    ),
}
CLIENT = {
    "env_client": "EnvClient",
    "sync_client": "SyncEnvClient",
    "generic_client": "GenericEnvClient GenericAction EnvClient",
    "mcp_client": "MCPClientBase MCPToolClient GenericMCPObservation EnvClient",
}
RUBRICS = {
    "base": "Rubric",
    "containers": "Sequential Gate WeightedSum RubricList RubricDict",
    "trajectory": "TrajectoryRubric ExponentialDiscountingTrajectoryRubric",
}
IN_BOTH = [
    *(("env_server." + module, name) for module, names in SERVER.items() for name in names.split()),
    *(("rubrics." + module, name) for module, names in RUBRICS.items() for name in names.split()),
    *(("rubrics", name) for names in RUBRICS.values() for name in names.split()),
]
ABSENT = ("evals", "harness", "llm_client", "rubrics.llm_judge", "tools", "utils")


def _from(module: str, name: str) -> object:
    path = f"openenv_trl.compat.{module}".rstrip(".")
    names: dict[str, object] = {}
    exec(f"from {path} import {name}", names)
    return names[name]


@pytest.mark.parametrize(("module", "name"), IN_BOTH)
def test_a_name_of_an_environments_is_ours_at_the_public_path(module: str, name: str) -> None:
    assert _from(module, name) is getattr(env_server, name)


@pytest.mark.parametrize("name", env_server.__all__)
def test_the_packages_themselves_offer_each_name(name: str) -> None:
    assert _from("env_server", name) is _from("", name) is getattr(env_server, name)


@pytest.mark.parametrize(("module", "names"), CLIENT.items())
def test_a_clients_name_is_ours_at_the_public_path(module: str, names: str) -> None:
    for name in names.split():
        assert _from(module, name) is getattr(client, name)
        if name != "GenericMCPObservation":
            assert _from("", name) is getattr(client, name)


def test_results_and_type_variables_are_those_of_our_classes() -> None:
    for module in ("client_types", "env_client", "sync_client", "generic_client", "mcp_client"):
        assert _from(module, "StepResult") is types.StepResult
    for name in ("ActT", "ObsT", "StateT"):
        assert _from("env_client", name) is getattr(env_client, name)
        assert _from("sync_client", name) is getattr(sync_client, name)
        assert _from("env_server.interfaces", name) is getattr(environment, name)


@pytest.mark.parametrize("module", ["", "env_server"])
def test_a_star_brings_every_name(module: str) -> None:
    path = f"openenv_trl.compat.{module}".rstrip(".")
    names: dict[str, object] = {}
    exec(f"from {path} import *", names)
    assert {*env_server.__all__} <= {*names}


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("env_server", "WebInterfaceManager", "a session of their own"),
        ("env_server.web_interface", "WebInterfaceManager", "a session of their own"),
        ("env_server.web_interface", "build_gradio_app", "override render_web"),
        ("env_server.route_config", "GetEndpointConfig", "the app that create_app returns"),
        ("env_server.serialization", "deserialize_action_with_preprocessing", "use deserialize_action"),
        ("rubrics", "LLMJudge", "forward asks your model"),
        ("", "LLMClient", "the trainer's"),
        *((module, "anything", "has no counterpart in openenv_trl") for module in ABSENT),
    ],
)
def test_an_import_of_what_is_not_offered_says_what_to_use(module: str, name: str, instead: str) -> None:
    with pytest.raises(ImportError, match=instead):
        _from(module, name)


def test_a_name_that_nobody_has_is_a_plain_error() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        _from("env_server.types", "Nothing")
    assert not hasattr(importlib.import_module("openenv_trl.compat"), "Nothing")


def test_an_environments_paths_import_neither_server_nor_client() -> None:
    code = (
        "import sys\nfrom openenv_trl.compat.env_server.interfaces import Environment, Transform\n"
        "from openenv_trl.compat.env_server.types import Action, State\n"
        "from openenv_trl.compat.env_server.mcp_environment import MCPEnvironment\n"
        "from openenv_trl.compat.env_server.mcp_types import CallToolObservation\n"
        "from openenv_trl.compat.rubrics import Rubric\nfrom openenv_trl.compat import State, env_server\n"
        "heavy = ('fastapi', 'uvicorn', 'anyio', 'mcp', 'fastmcp', 'websockets', 'openenv_trl.client')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
