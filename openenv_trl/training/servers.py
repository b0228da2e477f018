"""The environment servers of a run: those that run already, or child processes for as long as the run lasts."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers import ProcessProvider, make_provider
from openenv_trl.providers.remote import RemoteSpec
from openenv_trl.rollout.play import run_blocking
from openenv_trl.rollout.servers import ProvidedServers, Servers
from openenv_trl.training.environments import EnvironmentSpec
from openenv_trl.training.server_check import check_servers

if TYPE_CHECKING:
    from openenv_trl.training.arguments import EnvironmentArguments


@contextmanager
def open_servers(arguments: EnvironmentArguments) -> Generator[Servers]:
    """The addresses of the environment's servers. Servers started here end with the block.

    With a ``provider`` it is what that is to start: whoever opens a pool of sessions on it starts it, for as long as
    the pool is open.

    Under several processes on one machine, each process starts its own replicas: they share no state.

    Args:
        arguments: Names the environment or the addresses.

    Yields:
        Base URLs, or what is to be started.

    Raises:
        ConfigurationError: The experiment has several environments: see `open_environments`.
        ConnectionFailedError: None of the servers that are to run already answers.
        ServerStartError: A server ended or was not ready in time; the message has the end of its log.
        ProviderError: The engine that is to run them does not answer.
    """
    refuse_several_environments(arguments)
    check_named_servers(arguments)
    with _opened(arguments) as servers:
        yield servers


def refuse_several_environments(arguments: EnvironmentArguments) -> None:
    """Check that an experiment has one environment, for what can play in one only.

    Raises:
        ConfigurationError: It has several.
    """
    if arguments.environments:
        raise ConfigurationError(
            f"The experiment has several environments ({', '.join(arguments.environments)}), and this needs one. Give "
            "it an experiment with that one only."
        )


def check_named_servers(arguments: EnvironmentArguments) -> None:
    """Check that the servers answer that are to run already. What is still to be started is not asked.

    A model takes long to load, and a wrong address is found out at once.

    Args:
        arguments: Names the environment, or several.

    Raises:
        ConnectionFailedError: None of the servers of an environment answers.
        ProtocolError: What listens there is no OpenEnv server.
    """
    for name in arguments.environments:
        check_named_servers(arguments.for_environment(name))
    if arguments.environments:
        return
    provided = arguments.servers_to_start()
    if arguments.environment_urls:
        run_blocking(check_servers, arguments.environment_urls)
    elif provided is not None and isinstance(provided.spec, RemoteSpec):
        run_blocking(check_servers, provided.spec.urls, provided.spec.headers)


@contextmanager
def _opened(arguments: EnvironmentArguments) -> Generator[Servers]:
    if arguments.environment_urls:
        yield list(arguments.environment_urls)
        return
    provided = arguments.servers_to_start()
    if provided is not None:
        # A model takes longer to load than a missing image, or an engine that is not there, to be found out.
        make_provider(provided.spec).check_sync()
        print(f"environment: {provided.plan}", file=sys.stderr, flush=True)
        yield provided
        return
    assert arguments.environment is not None  # EnvironmentArguments requires one of the three
    env_vars = {"MAX_CONCURRENT_ENVS": str(arguments.sessions_per_server)} | (
        {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"}
    )
    with ProcessProvider(arguments.environment, replicas=arguments.replicas, env_vars=env_vars) as servers:
        yield list(servers.base_urls)


@contextmanager
def open_environments(
    arguments: EnvironmentArguments, max_completion_tokens: int
) -> Generator[Servers | dict[str, EnvironmentSpec]]:
    """What `EnvironmentRollout` takes: the addresses of the one environment, or a specification of each of several.

    Servers started here end with the block.

    Args:
        arguments: Names the environments.
        max_completion_tokens: Of an episode, the environment's tokens included.

    Raises:
        ConnectionFailedError: None of the servers of an environment that are to run already answers.
        ServerStartError: A server ended or was not ready in time; the message has the end of its log.
    """
    if not arguments.environments:
        with open_servers(arguments) as base_urls:
            yield base_urls
        return
    check_named_servers(arguments)
    specs: dict[str, EnvironmentSpec] = {}
    with ExitStack() as servers:
        for name in arguments.environments:
            own = arguments.for_environment(name)
            opened = servers.enter_context(_opened(own))
            provided = opened if isinstance(opened, ProvidedServers) else None
            specs[name] = EnvironmentSpec(
                base_urls=() if isinstance(opened, ProvidedServers) else tuple(opened),
                provided=provided,
                limits=own.limits(max_completion_tokens),
                sessions_per_server=own.sessions_per_server,
            )
        yield specs
