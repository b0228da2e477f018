"""``AsyncGRPOTrainer``: a rollout worker over environment servers, weights by way of a folder, and CPUs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openenv_trl.training.async_worker.arguments import InferenceArguments
    from openenv_trl.training.async_worker.portable import make_portable
    from openenv_trl.training.async_worker.served_model import inference_process
    from openenv_trl.training.async_worker.settings import AsyncRolloutSettings, settings_from_config
    from openenv_trl.training.async_worker.weights import DiskWeightTransfer
    from openenv_trl.training.async_worker.worker import EnvironmentRolloutWorker, trajectory_files

_HOME_OF = {
    "AsyncRolloutSettings": "settings",
    "DiskWeightTransfer": "weights",
    "EnvironmentRolloutWorker": "worker",
    "InferenceArguments": "arguments",
    "inference_process": "served_model",
    "make_portable": "portable",
    "settings_from_config": "settings",
    "trajectory_files": "worker",
}

__all__ = [
    "AsyncRolloutSettings",
    "DiskWeightTransfer",
    "EnvironmentRolloutWorker",
    "InferenceArguments",
    "inference_process",
    "make_portable",
    "settings_from_config",
    "trajectory_files",
]


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value  # importing a module of that name has put the module there
    return value
