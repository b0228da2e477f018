"""A server that a client starts for itself and stops when it is closed, through a provider.

Takes the providers of this package and those written for the public one: container providers (``start_container``,
``wait_for_ready``, ``stop_container``) and runtime providers (``start``, ``wait_for_ready``, ``stop``). Blocking ones
run in a thread. One of this package also tells why a server has ended, and which headers its requests need.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread

from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError

if TYPE_CHECKING:
    from openenv_trl.providers.base import Provider

# A server's connections end a moment before its engine tells of its end.
_DEATH_IS_TOLD_WITHIN_S = 1.0


class OwnedServer:
    """One server.

    Args:
        provider: What starts and stops it.
        running: Whether it runs already, so that it is only to be stopped.

    Raises:
        ConfigurationError: The provider has no start that can be called without arguments.
    """

    def __init__(self, provider: Any, *, running: bool) -> None:
        self._provider = provider
        self._name = type(provider).__name__
        self._ours = _own_provider(provider)
        self._started_at: str | None = None
        self._death = ""
        self._runs_containers = callable(getattr(provider, "start_container", None)) and self._ours is not provider
        start, stop = ("start_container", "stop_container") if self._runs_containers else ("start", "stop")
        self._start = _method(provider, start)
        self._stop = _method(provider, stop)
        self._to_stop = running
        if not running:
            _check_arguments(provider, self._start)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that every request to the server needs, once it was started."""
        replicas = [] if self._ours is None else self._ours.replicas
        return replicas[0].headers if replicas else {}

    async def death(self) -> str:
        """Return how the server ended by itself, with its last lines; "" where it did not, or nobody can tell."""
        if not self._death and self._ours is not None and self._started_at is not None:
            with anyio.move_on_after(_DEATH_IS_TOLD_WITHIN_S):
                try:
                    while (ended := await self._ours.wait_exited()).replica.base_url != self._started_at:
                        pass  # another of the provider's servers
                    self._death = ended.message
                except ProviderError:
                    return ""  # it was stopped meanwhile
        return self._death

    async def start(self) -> str:
        """Start the server, wait until it is ready, and return its address.

        Raises:
            ServerStartError: The provider gave no address.
        """
        self._to_stop = True
        self._started_at, self._death = None, ""
        try:
            given = await _call(self._start)
            base_url = _base_url(given)
            if base_url is None:
                raise ServerStartError(f"{self._name} started, but gave no address of a server: {given!r}.")
            wait = getattr(self._provider, "wait_for_ready", None)
            if callable(wait) and self._ours is None:
                await _call(wait, *([base_url] if self._runs_containers else []))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.stop()
            raise
        self._started_at = base_url
        return base_url

    async def stop(self) -> None:
        """Stop the server. Does nothing where it was stopped; tries again where that failed."""
        if self._to_stop:
            await _call(self._stop)
            self._to_stop = False


class ImageServer:
    """A container provider and the image for it to run, as a provider that starts without arguments.

    Args:
        provider: An object with ``start_container(image, …)``, ``wait_for_ready(base_url)`` and ``stop_container()``.
        image: The image.
        arguments: Further arguments of ``start_container``.
        ready_timeout_s: Seconds for the server to be ready; None for the provider's own.

    Raises:
        ConfigurationError: The provider is no container provider, or takes other arguments.
    """

    def __init__(
        self, provider: Any, image: str, arguments: Mapping[str, Any], *, ready_timeout_s: float | None = None
    ) -> None:
        self.provider = provider
        self._image = image
        self._arguments = arguments
        self._ready_timeout_s = ready_timeout_s
        _method(provider, "stop_container")
        _check_arguments(provider, _method(provider, "start_container"), image, **arguments)

    async def start(self) -> str:
        """Start the container, and return its server's address when that is ready."""
        base_url = await _call(self.provider.start_container, self._image, **self._arguments)
        ours = _own_provider(self.provider)
        if ours is not None:
            # Its own way of waiting knows the spec's deadline, and tells of a container that has ended at once.
            await ours.wait_ready(timeout_s=self._ready_timeout_s)
        else:
            timeout = {} if self._ready_timeout_s is None else {"timeout_s": self._ready_timeout_s}
            await _call(self.provider.wait_for_ready, base_url, **timeout)
        return base_url

    async def stop(self) -> None:
        """Stop the container."""
        await _call(self.provider.stop_container)


def _own_provider(provider: Any) -> Provider | None:
    """The provider of this package's own that runs the server, itself or under another that starts it."""
    from openenv_trl.providers.base import Provider

    beneath = getattr(provider, "provider", None)
    return next((each for each in (provider, beneath) if isinstance(each, Provider)), None)


def _method(provider: Any, name: str) -> Callable[..., Any]:
    method = getattr(provider, name, None)
    if not callable(method):
        raise ConfigurationError(
            f"provider={type(provider).__name__} cannot be used: it has no method {name}(). A provider has start() and "
            "stop(), or start_container(image) and stop_container()."
        )
    return method


def _check_arguments(provider: Any, start: Callable[..., Any], *positional: Any, **named: Any) -> None:
    try:
        inspect.signature(start).bind(*positional, **named)
    except TypeError as error:
        raise ConfigurationError(
            f"provider={type(provider).__name__} cannot start a server so: {error}. For a provider that needs an image "
            "use from_docker_image(image, provider=...)."
        ) from None
    except ValueError:
        pass  # a function in C, which tells no signature


async def _call(function: Callable[..., Any], *positional: Any, **named: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*positional, **named)
    given = await anyio.to_thread.run_sync(lambda: function(*positional, **named))
    return await given if inspect.isawaitable(given) else given


def _base_url(given: Any) -> str | None:
    if isinstance(given, str):
        return given
    replicas = cast("list[Any]", given) if isinstance(given, list) else [given]
    base_url = getattr(replicas[0], "base_url", None) if replicas else None
    return base_url if isinstance(base_url, str) else None
