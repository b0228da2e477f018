"""Its server."""

import os

from openenv.core.env_server import create_app

from ..models import GridAction, GridObservation, GridState
from .grid_environment import GridEnvironment

most = int(os.environ.get("MAX_CONCURRENT_ENVS", "4"))
app = create_app(
    GridEnvironment,
    GridAction,
    GridObservation,
    env_name="ported_grid",
    max_concurrent_envs=most,
    state_cls=GridState,
)
