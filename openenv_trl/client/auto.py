"""Clients and actions by an environment's name, without importing its package by hand.

Promises: nothing is downloaded and no server is asked before `connect`; the client that comes back belongs to no event
loop yet, so it works with ``async with``, ``with`` and ``.sync()`` alike.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from openenv_trl.client.discovery import (
    InstalledEnvironment,
    find_environment,
    installed_environments,
    normal_name,
)
from openenv_trl.client.env_client import EnvClient
from openenv_trl.client.generic import GenericAction, GenericEnvClient
from openenv_trl.client.installed_server import InstalledServer
from openenv_trl.client.owned_server import ImageServer
from openenv_trl.errors import ConfigurationError

AnyClient = EnvClient[Any, Any, Any]


class AutoEnv:
    """Makes the client of an environment from its name.

    Example:
        >>> with AutoEnv.from_env("blackjack", base_url="http://localhost:8000") as env:
        ...     print(env.reset(seed=1).observation)
    """

    def __init__(self) -> None:
        _refuse_instance("AutoEnv", 'AutoEnv.from_env("echo", base_url=...)')

    @classmethod
    def from_env(
        cls,
        name: str,
        base_url: str | None = None,
        docker_image: str | None = None,
        container_provider: Any = None,
        wait_timeout: float = 30.0,
        env_vars: Mapping[str, str] | None = None,
        trust_remote_code: bool = False,
        skip_install: bool = False,
        **client_arguments: Any,
    ) -> Any:
        """Return the environment's client, to be connected.

        Where its server is, in this order: ``base_url``; what ``container_provider`` starts; a container of
        ``docker_image``; the running Space of a name of the Hub, woken where it sleeps; for an environment that is
        installed here, a container of its image if this machine's Docker engine has that, else its own package as a
        process. What is started is stopped with the client.

        Args:
            name: An installed environment (``echo``, ``echo-env``, ``echo_env``), or one of the Hugging Face Hub
                (``owner/echo_env``).
            base_url: The address of a server that runs.
            docker_image: The image to run; by default the environment's own.
            container_provider: What runs it, in place of this machine's Docker engine: a container provider of this
                package, an object with ``start_container(image, env_vars=...)``, ``wait_for_ready(base_url,
                timeout_s)`` and ``stop_container()``; or one that needs no image, with ``start()`` and ``stop()``.
            wait_timeout: Seconds for the server to be ready; a Space has five minutes, to wake.
            env_vars: Environment variables of the server.
            trust_remote_code: Taken for the public package's sake. Code of the Hub is never installed here.
            skip_install: Whether the generic client will do, which needs no package of the environment's.
            **client_arguments: Arguments of the client, such as ``message_timeout_s``.

        Raises:
            ConfigurationError: There is no such environment here, or nothing to reach it by; it says what to give.
        """
        from openenv_trl.providers.hub import repository_of

        repository = repository_of(name)
        client_class = _client_class(name, repository, skip_install=skip_install)
        if base_url is not None:
            return client_class(base_url=base_url, **client_arguments)
        provider = container_provider
        if provider is None and docker_image is not None:
            from openenv_trl.providers.docker import LocalDockerProvider

            provider = LocalDockerProvider()
        if provider is not None:
            if docker_image is not None or _needs_image(provider):
                image = docker_image or _image(name, repository)
                arguments = {} if env_vars is None else {"env_vars": dict(env_vars)}
                provider = ImageServer(provider, image, arguments, ready_timeout_s=wait_timeout)
        elif repository is not None:
            from openenv_trl.providers.space import SpaceProvider

            settings: dict[str, Any] = {} if env_vars is None else {"env_vars": dict(env_vars)}
            provider = SpaceProvider(repository, **settings)
        else:
            found = find_environment(name)
            if found is None:
                raise ConfigurationError(
                    f"No environment '{name}' is installed, so there is nothing to start: pass base_url= of a server "
                    f"that runs, or docker_image=, such as '{_image(name, None)}'."
                )
            provider = InstalledServer(found, env_vars or {}, ready_timeout_s=wait_timeout)
        return client_class(provider=provider, **client_arguments)

    @classmethod
    def from_hub(cls, name: str, *positional: Any, **named: Any) -> Any:
        """As `from_env`."""
        return cls.from_env(name, *positional, **named)

    @classmethod
    def get_env_class(cls, name: str) -> type[AnyClient]:
        """Return the class of an installed environment's client.

        Raises:
            ConfigurationError: There is no such environment here, or its class cannot be imported.
        """
        return _installed(name).client_class()

    @classmethod
    def get_env_info(cls, name: str) -> dict[str, Any]:
        """Return what is known of an installed environment, without importing it.

        Raises:
            ConfigurationError: There is no such environment here.
        """
        found = _installed(name)
        return {
            "env_key": found.key,
            "name": found.name,
            "package": found.package,
            "version": found.version,
            "description": found.description,
            "env_class": found.client_name,
            "action_class": found.action_name,
            "observation_class": found.observation_name,
            "module": f"{found.module}.client",
            "default_image": found.default_image,
            "spec_version": found.spec_version,
        }

    @classmethod
    def list_environments(cls) -> None:
        """Print the environments that are installed."""
        _print_table("Environments", lambda found: f"{found.description} ({found.package} {found.version})")


class AutoAction:
    """Gives the action's class of an environment by its name.

    Example:
        >>> BlackjackAction = AutoAction.from_env("blackjack")
    """

    def __init__(self) -> None:
        _refuse_instance("AutoAction", 'AutoAction.from_env("echo")')

    @classmethod
    def from_env(cls, name: str, skip_install: bool = False) -> type[Any]:
        """Return the class.

        Args:
            name: As for `AutoEnv.from_env`.
            skip_install: Whether `GenericAction` will do, which takes any fields.

        Raises:
            ConfigurationError: There is no such environment here, or its class cannot be imported.
        """
        if skip_install:
            return GenericAction
        return _installed(name).action_class()

    @classmethod
    def from_hub(cls, env_name: str, skip_install: bool = False) -> type[Any]:
        """As `from_env`."""
        return cls.from_env(env_name, skip_install)

    @classmethod
    def get_action_info(cls, name: str) -> dict[str, Any]:
        """Return the names of an installed environment's classes, without importing it.

        Raises:
            ConfigurationError: There is no such environment here.
        """
        info = AutoEnv.get_env_info(name)
        names = ("env_key", "package", "action_class", "observation_class", "module")
        return {**{key: info[key] for key in names}, "env_name": info["name"]}

    @classmethod
    def list_actions(cls) -> None:
        """Print the action classes of the environments that are installed."""
        _print_table("Actions", lambda found: f"{found.action_name} ({found.package} {found.version})")


def _needs_image(provider: Any) -> bool:
    """Whether a provider is one of containers, and does not know yet what to run."""
    if not callable(getattr(provider, "start_container", None)):
        return False
    try:
        return getattr(provider, "spec", None) is None
    except ConfigurationError:
        return True  # how one of this package says that it has no spec


def _image(name: str, repository: str | None) -> str:
    from openenv_trl.providers.hub import space_image

    if repository is not None:
        return space_image(repository)
    found = find_environment(name)
    return found.default_image if found else f"{normal_name(name).replace('_', '-')}:latest"


def _client_class(name: str, repository: str | None, *, skip_install: bool) -> type[AnyClient]:
    return GenericEnvClient if skip_install else _installed(name, repository).client_class()


def _installed(name: str, repository: str | None = None) -> InstalledEnvironment:
    from openenv_trl.providers.hub import repository_of

    repository = repository or repository_of(name)
    found = find_environment(repository.rpartition("/")[2] if repository else name)
    if found is not None:
        return found
    if repository is not None:
        raise ConfigurationError(
            f"The environment package of '{repository}' is not installed, and code of the Hub is not installed by "
            f"itself. Look at it, then: pip install git+https://huggingface.co/spaces/{repository} - or pass "
            "skip_install=True to use the generic classes."
        )
    known = sorted(installed_environments())
    near = difflib.get_close_matches(normal_name(name), known, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise ConfigurationError(
        f"No environment '{name}' is installed.{hint} Installed: {', '.join(known) or 'none'}. Install its package, or "
        "pass skip_install=True to use the generic classes."
    )


def _print_table(title: str, line: Callable[[InstalledEnvironment], str]) -> None:
    found = installed_environments()
    print(f"{title}:")
    for environment in sorted(found.values(), key=lambda each: each.key):
        print(f"  {environment.key:<16} {line(environment)}")
    print(f"{len(found)} installed")


def _refuse_instance(name: str, instead: str) -> NoReturn:
    raise TypeError(f"{name} is not to be instantiated: call {instead}.")
