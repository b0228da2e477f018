"""All that an environment package imports, in one place: the names of the public package's ``openenv.core.env_server``.

An environment written for that package keeps its module paths too: `openenv_trl.compat` has them. Each name is
imported when it is first used, so that an environment without a server imports none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openenv_trl.environment import RESERVED_TOOL_NAMES as RESERVED_TOOL_NAMES
    from openenv_trl.environment import Environment as Environment
    from openenv_trl.environment import tool as tool
    from openenv_trl.errors import ConcurrencyConfigurationError as ConcurrencyConfigurationError
    from openenv_trl.errors import EnvironmentFactoryError as EnvironmentFactoryError
    from openenv_trl.errors import OpenEnvError as OpenEnvError
    from openenv_trl.errors import SessionCapacityError as SessionCapacityError
    from openenv_trl.errors import SessionCreationError as SessionCreationError
    from openenv_trl.errors import SessionNotFoundError as SessionNotFoundError
    from openenv_trl.mcp_environment import MCPEnvironment as MCPEnvironment
    from openenv_trl.protocols import Message as Message
    from openenv_trl.protocols import ModelTokenizer as ModelTokenizer
    from openenv_trl.protocols import TaskProvider as TaskProvider
    from openenv_trl.rubrics import ExponentialDiscountingTrajectoryRubric as ExponentialDiscountingTrajectoryRubric
    from openenv_trl.rubrics import Gate as Gate
    from openenv_trl.rubrics import Rubric as Rubric
    from openenv_trl.rubrics import RubricDict as RubricDict
    from openenv_trl.rubrics import RubricList as RubricList
    from openenv_trl.rubrics import Sequential as Sequential
    from openenv_trl.rubrics import TrajectoryRubric as TrajectoryRubric
    from openenv_trl.rubrics import WeightedSum as WeightedSum
    from openenv_trl.server.app import HTTPEnvServer as HTTPEnvServer
    from openenv_trl.server.app import create_app as create_app
    from openenv_trl.server.app import create_fastapi_app as create_fastapi_app
    from openenv_trl.server.app import create_web_interface_app as create_web_interface_app
    from openenv_trl.server.capacity import ConcurrencyConfig as ConcurrencyConfig
    from openenv_trl.server.capacity import ServerCapacityStatus as ServerCapacityStatus
    from openenv_trl.server.capacity import SessionInfo as SessionInfo
    from openenv_trl.server.settings import AppSettings as AppSettings
    from openenv_trl.transform import CompositeTransform as CompositeTransform
    from openenv_trl.transform import NullTransform as NullTransform
    from openenv_trl.transform import Transform as Transform
    from openenv_trl.types import Action as Action
    from openenv_trl.types import CallToolAction as CallToolAction
    from openenv_trl.types import EnvironmentMetadata as EnvironmentMetadata
    from openenv_trl.types import ListToolsAction as ListToolsAction
    from openenv_trl.types import Observation as Observation
    from openenv_trl.types import Scalar as Scalar
    from openenv_trl.types import ServerMode as ServerMode
    from openenv_trl.types import State as State
    from openenv_trl.types import StepResult as StepResult
    from openenv_trl.types import Tool as Tool
    from openenv_trl.wire.actions import deserialize_action as deserialize_action
    from openenv_trl.wire.faults import WSErrorCode as WSErrorCode
    from openenv_trl.wire.http_models import BaseMessage as BaseMessage
    from openenv_trl.wire.http_models import CodeExecResult as CodeExecResult
    from openenv_trl.wire.http_models import GetTaskRangeRequest as GetTaskRangeRequest
    from openenv_trl.wire.http_models import GetTaskRequest as GetTaskRequest
    from openenv_trl.wire.http_models import HealthResponse as HealthResponse
    from openenv_trl.wire.http_models import HealthStatus as HealthStatus
    from openenv_trl.wire.http_models import ListTasksRequest as ListTasksRequest
    from openenv_trl.wire.http_models import NumTasksRequest as NumTasksRequest
    from openenv_trl.wire.http_models import ResetRequest as ResetRequest
    from openenv_trl.wire.http_models import ResetResponse as ResetResponse
    from openenv_trl.wire.http_models import SchemaResponse as SchemaResponse
    from openenv_trl.wire.http_models import StepRequest as StepRequest
    from openenv_trl.wire.http_models import StepResponse as StepResponse
    from openenv_trl.wire.messages import JsonRpcError as JsonRpcError
    from openenv_trl.wire.messages import JsonRpcRequest as JsonRpcRequest
    from openenv_trl.wire.messages import JsonRpcResponse as JsonRpcResponse
    from openenv_trl.wire.messages import WSCloseMessage as WSCloseMessage
    from openenv_trl.wire.messages import WSErrorResponse as WSErrorResponse
    from openenv_trl.wire.messages import WSIncomingMessage as WSIncomingMessage
    from openenv_trl.wire.messages import WSMCPMessage as WSMCPMessage
    from openenv_trl.wire.messages import WSMCPResponse as WSMCPResponse
    from openenv_trl.wire.messages import WSObservationResponse as WSObservationResponse
    from openenv_trl.wire.messages import WSResetMessage as WSResetMessage
    from openenv_trl.wire.messages import WSStateMessage as WSStateMessage
    from openenv_trl.wire.messages import WSStateResponse as WSStateResponse
    from openenv_trl.wire.messages import WSStepMessage as WSStepMessage
    from openenv_trl.wire.observations import serialize_observation as serialize_observation
    from openenv_trl.wire.rpc import McpMethod as McpMethod
    from openenv_trl.wire.tools import CallToolObservation as CallToolObservation
    from openenv_trl.wire.tools import ListToolsObservation as ListToolsObservation
    from openenv_trl.wire.tools import ToolError as ToolError
    from openenv_trl.wire.tools import ToolErrorType as ToolErrorType

_HOMES: dict[str, tuple[str, ...]] = {
    "openenv_trl.environment": ("RESERVED_TOOL_NAMES", "Environment", "tool"),
    "openenv_trl.errors": (
        "ConcurrencyConfigurationError",
        "EnvironmentFactoryError",
        "OpenEnvError",
        "SessionCapacityError",
        "SessionCreationError",
        "SessionNotFoundError",
    ),
    "openenv_trl.mcp_environment": ("MCPEnvironment",),
    "openenv_trl.protocols": ("Message", "ModelTokenizer", "TaskProvider"),
    "openenv_trl.rubrics": (
        "ExponentialDiscountingTrajectoryRubric",
        "Gate",
        "Rubric",
        "RubricDict",
        "RubricList",
        "Sequential",
        "TrajectoryRubric",
        "WeightedSum",
    ),
    "openenv_trl.server.app": ("HTTPEnvServer", "create_app", "create_fastapi_app", "create_web_interface_app"),
    "openenv_trl.server.capacity": ("ConcurrencyConfig", "ServerCapacityStatus", "SessionInfo"),
    "openenv_trl.server.settings": ("AppSettings",),
    "openenv_trl.transform": ("CompositeTransform", "NullTransform", "Transform"),
    "openenv_trl.types": (
        "Action",
        "CallToolAction",
        "EnvironmentMetadata",
        "ListToolsAction",
        "Observation",
        "Scalar",
        "ServerMode",
        "State",
        "StepResult",
        "Tool",
    ),
    "openenv_trl.wire.actions": ("deserialize_action",),
    "openenv_trl.wire.faults": ("WSErrorCode",),
    "openenv_trl.wire.http_models": (
        "BaseMessage",
        "CodeExecResult",
        "GetTaskRangeRequest",
        "GetTaskRequest",
        "HealthResponse",
        "HealthStatus",
        "ListTasksRequest",
        "NumTasksRequest",
        "ResetRequest",
        "ResetResponse",
        "SchemaResponse",
        "StepRequest",
        "StepResponse",
    ),
    "openenv_trl.wire.messages": (
        "JsonRpcError",
        "JsonRpcRequest",
        "JsonRpcResponse",
        "WSCloseMessage",
        "WSErrorResponse",
        "WSIncomingMessage",
        "WSMCPMessage",
        "WSMCPResponse",
        "WSObservationResponse",
        "WSResetMessage",
        "WSStateMessage",
        "WSStateResponse",
        "WSStepMessage",
    ),
    "openenv_trl.wire.observations": ("serialize_observation",),
    "openenv_trl.wire.rpc": ("McpMethod",),
    "openenv_trl.wire.tools": ("CallToolObservation", "ListToolsObservation", "ToolError", "ToolErrorType"),
}
_HOME_OF = {name: (module, name) for module, names in _HOMES.items() for name in names}
_HOME_OF["JsonRpcErrorCode"] = ("openenv_trl.wire.rpc", "RpcErrorCode")

_NOT_OFFERED = {
    "LLMClient": "language models are the trainer's here",
    "LLMJudge": "write a Rubric whose forward asks your model",
    "WebInterfaceManager": "each visitor of the debug page has a session of their own, and nothing manages them all",
}

__all__ = [*_HOME_OF]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]  # all are strings


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        why = f": {_NOT_OFFERED[name]}" if name in _NOT_OFFERED else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{why}")
    value = getattr(importlib.import_module(home[0]), home[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
