"""The environment servers of a run: those that run already, or child processes for as long as the run lasts."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from openenv_trl.providers import ProcessProvider

if TYPE_CHECKING:
    from openenv_trl.training.arguments import EnvironmentArguments


@contextmanager
def open_servers(arguments: EnvironmentArguments) -> Generator[list[str]]:
    """The addresses of the environment's servers. Servers started here end with the block.

    Under several processes on one machine, each process starts its own replicas: they share no state.

    Args:
        arguments: Names the environment or the addresses.

    Yields:
        Base URLs.

    Raises:
        ServerStartError: A server ended or was not ready in time; the message has the end of its log.
    """
    if arguments.environment_urls:
        yield list(arguments.environment_urls)
        return
    assert arguments.environment is not None  # EnvironmentArguments requires one of the two
    env_vars = {"MAX_CONCURRENT_ENVS": str(arguments.sessions_per_server)} | (
        {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"}
    )
    with ProcessProvider(arguments.environment, replicas=arguments.replicas, env_vars=env_vars) as servers:
        yield list(servers.base_urls)
