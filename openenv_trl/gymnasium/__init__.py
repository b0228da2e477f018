"""Gymnasium and OpenEnv joined, both ways: Gymnasium environments served, and servers used as Gymnasium environments.

Needs the extra ``gymnasium``: ``pip install 'openenv-trl[gymnasium]'``. Importing this package registers
``openenv_trl/Remote-v0`` with Gymnasium.

Example:
    >>> from openenv_trl.gymnasium import GymnasiumEnvironment, RemoteEnv, gymnasium_app
    >>> app = gymnasium_app("CartPole-v1")  # or, on a command line: openenv-trl serve gymnasium:CartPole-v1
    >>> env = RemoteEnv("http://localhost:8000")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.errors import ConfigurationError
from openenv_trl.lazy_names import lazy_names

try:
    import gymnasium
except ImportError as error:
    raise ConfigurationError(
        "openenv_trl.gymnasium needs the package gymnasium: pip install 'openenv-trl[gymnasium]'."
    ) from error

if TYPE_CHECKING:
    from openenv_trl.gymnasium.environment import GymnasiumEnvironment
    from openenv_trl.gymnasium.models import GymnasiumAction, GymnasiumObservation, GymnasiumState
    from openenv_trl.gymnasium.remote_env import RemoteEnv
    from openenv_trl.gymnasium.remote_vector_env import RemoteVectorEnv
    from openenv_trl.gymnasium.serving import gymnasium_app
    from openenv_trl.gymnasium.space_json import json_of_space, space_of_json

__getattr__ = lazy_names(
    __name__,
    {
        "openenv_trl.gymnasium.environment": ("GymnasiumEnvironment",),
        "openenv_trl.gymnasium.models": ("GymnasiumAction", "GymnasiumObservation", "GymnasiumState"),
        "openenv_trl.gymnasium.remote_env": ("RemoteEnv",),
        "openenv_trl.gymnasium.remote_vector_env": ("RemoteVectorEnv",),
        "openenv_trl.gymnasium.serving": ("gymnasium_app",),
        "openenv_trl.gymnasium.space_json": ("json_of_space", "space_of_json"),
    },
)

__all__ = [
    "GymnasiumAction",
    "GymnasiumEnvironment",
    "GymnasiumObservation",
    "GymnasiumState",
    "RemoteEnv",
    "RemoteVectorEnv",
    "gymnasium_app",
    "json_of_space",
    "space_of_json",
]

gymnasium.register(  # pyright: ignore[reportUnknownMemberType] - kwargs is a bare dict
    id="openenv_trl/Remote-v0",
    entry_point="openenv_trl.gymnasium.remote_env:RemoteEnv",
    vector_entry_point="openenv_trl.gymnasium.remote_vector_env:RemoteVectorEnv",
    # What the server checks need not be checked again, and the server says where an episode ends.
    disable_env_checker=True,
)
