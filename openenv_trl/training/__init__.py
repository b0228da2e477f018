"""The adapters to TRL. The only room that imports torch, transformers and trl, and only where they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.lazy_names import lazy_names

if TYPE_CHECKING:
    from openenv_trl.training.action_tools import ActionTools
    from openenv_trl.training.arguments import EnvironmentArguments
    from openenv_trl.training.columns import attach_columns, detach_columns
    from openenv_trl.training.concurrent_environments import ConcurrentEnvironments
    from openenv_trl.training.curriculum_settings import BandCurriculum, CurriculumLevel, StagedCurriculum
    from openenv_trl.training.environment_factory import (
        EnvironmentFactories,
        EnvironmentFactory,
        make_environment_factories,
        make_environment_factory,
    )
    from openenv_trl.training.environment_trainer import EnvironmentGRPOTrainer
    from openenv_trl.training.environments import EnvironmentSpec
    from openenv_trl.training.episode_progress import EpisodeProgress
    from openenv_trl.training.mixture import mix_datasets
    from openenv_trl.training.policies import TransformersPolicy
    from openenv_trl.training.progress import RolloutProgress, disable_progress_bars
    from openenv_trl.training.reward_func import environment_reward_func
    from openenv_trl.training.rollout_func import EnvironmentRollout
    from openenv_trl.training.servers import open_environments, open_servers
    from openenv_trl.training.start_checks import check_environment_training
    from openenv_trl.training.supervised import WarmStartSettings, warm_start
    from openenv_trl.training.tiny_policy import make_tiny_policy

_HOMES = {
    "action_tools": ("ActionTools",),
    "arguments": ("EnvironmentArguments",),
    "columns": ("attach_columns", "detach_columns"),
    "concurrent_environments": ("ConcurrentEnvironments",),
    "curriculum_settings": ("BandCurriculum", "CurriculumLevel", "StagedCurriculum"),
    "environment_factory": (
        "EnvironmentFactories",
        "EnvironmentFactory",
        "make_environment_factories",
        "make_environment_factory",
    ),
    "reward_func": ("environment_reward_func",),
    "environment_trainer": ("EnvironmentGRPOTrainer",),
    "environments": ("EnvironmentSpec",),
    "episode_progress": ("EpisodeProgress",),
    "mixture": ("mix_datasets",),
    "policies": ("TransformersPolicy",),
    "progress": ("RolloutProgress", "disable_progress_bars"),
    "rollout_func": ("EnvironmentRollout",),
    "start_checks": ("check_environment_training",),
    "servers": ("open_environments", "open_servers"),
    "tiny_policy": ("make_tiny_policy",),
    "supervised": ("WarmStartSettings", "warm_start"),
}
__getattr__ = lazy_names(__name__, {f"{__name__}.{module}": names for module, names in _HOMES.items()})

__all__ = [
    "ActionTools",
    "BandCurriculum",
    "ConcurrentEnvironments",
    "CurriculumLevel",
    "EnvironmentArguments",
    "EnvironmentFactories",
    "EnvironmentFactory",
    "EnvironmentGRPOTrainer",
    "EnvironmentRollout",
    "EnvironmentSpec",
    "EpisodeProgress",
    "RolloutProgress",
    "StagedCurriculum",
    "TransformersPolicy",
    "WarmStartSettings",
    "attach_columns",
    "check_environment_training",
    "detach_columns",
    "disable_progress_bars",
    "environment_reward_func",
    "make_environment_factories",
    "make_environment_factory",
    "make_tiny_policy",
    "mix_datasets",
    "open_environments",
    "open_servers",
    "warm_start",
]
