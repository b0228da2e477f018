"""The adapters to TRL. The only room that imports torch, transformers and trl, and only where they are used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openenv_trl.training.arguments import EnvironmentArguments
    from openenv_trl.training.columns import attach_columns, detach_columns
    from openenv_trl.training.curriculum_settings import BandCurriculum, CurriculumLevel, StagedCurriculum
    from openenv_trl.training.environments import EnvironmentSpec
    from openenv_trl.training.mixture import mix_datasets
    from openenv_trl.training.policies import TransformersPolicy
    from openenv_trl.training.progress import RolloutProgress, disable_progress_bars
    from openenv_trl.training.rollout_func import EnvironmentRollout
    from openenv_trl.training.servers import open_environments, open_servers
    from openenv_trl.training.supervised import WarmStartSettings, warm_start
    from openenv_trl.training.tiny_policy import make_tiny_policy

_HOMES = {
    "arguments": ("EnvironmentArguments",),
    "columns": ("attach_columns", "detach_columns"),
    "curriculum_settings": ("BandCurriculum", "CurriculumLevel", "StagedCurriculum"),
    "environments": ("EnvironmentSpec",),
    "mixture": ("mix_datasets",),
    "policies": ("TransformersPolicy",),
    "progress": ("RolloutProgress", "disable_progress_bars"),
    "rollout_func": ("EnvironmentRollout",),
    "servers": ("open_environments", "open_servers"),
    "tiny_policy": ("make_tiny_policy",),
    "supervised": ("WarmStartSettings", "warm_start"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BandCurriculum",
    "CurriculumLevel",
    "EnvironmentArguments",
    "EnvironmentRollout",
    "EnvironmentSpec",
    "RolloutProgress",
    "StagedCurriculum",
    "TransformersPolicy",
    "WarmStartSettings",
    "attach_columns",
    "detach_columns",
    "disable_progress_bars",
    "make_tiny_policy",
    "mix_datasets",
    "open_environments",
    "open_servers",
    "warm_start",
]


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
