"""Train language models with TRL's GRPO on OpenEnv environments.

The public names are imported when first used: ``import openenv_trl`` stays light and pulls in no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from openenv_trl._version import __version__

if TYPE_CHECKING:
    from openenv_trl.client import (
        AutoAction,
        AutoEnv,
        EnvClient,
        GenericAction,
        GenericEnvClient,
        MCPToolClient,
        SyncEnvClient,
    )
    from openenv_trl.environment import Environment, tool
    from openenv_trl.environment_checker import check_environment
    from openenv_trl.errors import OpenEnvError
    from openenv_trl.providers import ProcessProvider, SessionPool
    from openenv_trl.rewards import environment_reward
    from openenv_trl.rollout import EndReason, RolloutEngine, RolloutLimits, Task, Trajectory
    from openenv_trl.server import create_app
    from openenv_trl.types import Action, EnvironmentMetadata, Observation, State, StepResult, Tool

_HOMES = {
    "openenv_trl.client": (
        "AutoAction",
        "AutoEnv",
        "EnvClient",
        "GenericAction",
        "GenericEnvClient",
        "MCPToolClient",
        "SyncEnvClient",
    ),
    "openenv_trl.environment": ("Environment", "tool"),
    "openenv_trl.environment_checker": ("check_environment",),
    "openenv_trl.errors": ("OpenEnvError",),
    "openenv_trl.providers": ("ProcessProvider", "SessionPool"),
    "openenv_trl.rewards": ("environment_reward",),
    "openenv_trl.rollout": ("EndReason", "RolloutEngine", "RolloutLimits", "Task", "Trajectory"),
    "openenv_trl.server": ("create_app",),
    "openenv_trl.types": ("Action", "EnvironmentMetadata", "Observation", "State", "StepResult", "Tool"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Action",
    "AutoAction",
    "AutoEnv",
    "EndReason",
    "EnvClient",
    "Environment",
    "EnvironmentMetadata",
    "GenericAction",
    "GenericEnvClient",
    "MCPToolClient",
    "Observation",
    "OpenEnvError",
    "ProcessProvider",
    "RolloutEngine",
    "RolloutLimits",
    "SessionPool",
    "State",
    "StepResult",
    "SyncEnvClient",
    "Task",
    "Tool",
    "Trajectory",
    "__version__",
    "check_environment",
    "create_app",
    "environment_reward",
    "tool",
]


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
