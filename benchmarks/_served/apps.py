"""The application to serve: the one that the environment variable SERVED names."""

from __future__ import annotations

import os
from typing import Any

from openenv.core.env_server.http_server import create_app

SESSIONS = 20_000


def application(name: str) -> Any:
    """Return the application of the environment of that name."""
    if name == "tools":
        from .tools import ToolEnvironment, ToolStep, ToolStepObservation

        return create_app(ToolEnvironment, ToolStep, ToolStepObservation, max_concurrent_envs=SESSIONS)
    from . import environments, models

    echoes = {
        "echo": environments.EchoEnvironment,
        "async_echo": environments.AsyncEchoEnvironment,
        "sleeping": environments.SleepingEnvironment,
        "patient": environments.PatientEnvironment,
    }
    frames = {
        "frame": (environments.FrameEnvironment, models.FrameObservation),
        "array": (environments.ArrayEnvironment, models.ArrayObservation),
    }
    if name in echoes:
        return create_app(echoes[name], models.EchoAction, models.EchoObservation, max_concurrent_envs=SESSIONS)
    environment, observation = frames[name]
    return create_app(environment, models.FrameAction, observation, max_concurrent_envs=SESSIONS)


app = application(os.environ["SERVED"])

if os.environ.get("SERVED_TRACED"):
    import gc
    import tracemalloc

    tracemalloc.start()

    @app.get("/traced")
    def traced() -> int:
        """Bytes that Python objects hold."""
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
