"""The call shape of the public package's providers: ``start_container``, ``wait_for_ready``, ``stop_container``.

Our container providers have these calls beside their own, and pass for a `ContainerProvider`. The two abstract classes
are for providers written for that package: one that subclasses them is used through
`openenv_trl.providers.plugged.PluggedProvider`. All calls block, also where an event loop runs, as in a notebook.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from typing_extensions import Self

from openenv_trl.errors import ConfigurationError, DeadlineExceededError, ProviderError, ServerStartError
from openenv_trl.providers.base import Replica, ReplicaExit, run_sync
from openenv_trl.providers.engine_provider import EngineProvider
from openenv_trl.providers.readiness import listening_elsewhere
from openenv_trl.providers.spec import ContainerSpec, variables_of
from openenv_trl.providers.spec_fields import spec_or_fields

SpecT = TypeVar("SpecT", bound=ContainerSpec)
_NO_IMAGE = "image-to-be-named"


class ContainerProvider(ABC):
    """What runs one container at a time. Leaving its ``with`` block calls ``close``."""

    @abstractmethod
    def start_container(
        self, image: str, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any
    ) -> str:
        """Starts a container, and returns the address of its server, which need not answer yet.

        Args:
            image: The image to run.
            port: The port that the caller wants to reach it by; any if None.
            env_vars: Environment variables of the server.
            **kwargs: The provider's own settings.
        """

    @abstractmethod
    def stop_container(self) -> None:
        """Ends the container."""

    @abstractmethod
    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        """Waits until the server answers its health check.

        Args:
            base_url: What ``start_container`` returned.
            timeout_s: Seconds to wait at most.

        Raises:
            TimeoutError: It did not.
        """

    def close(self) -> None:  # noqa: B027 - nothing to close is the usual case
        """Lets go of what the provider holds beside its container."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RuntimeProvider(ABC):
    """What runs one server that it knows itself. Its ``with`` block starts and stops it."""

    @abstractmethod
    def start(self, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any) -> str:
        """Starts the server, and returns its address.

        Args:
            port: The port to reach it by; any if None.
            env_vars: Environment variables of the server.
            **kwargs: The provider's own settings.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ends the server."""

    @abstractmethod
    def wait_for_ready(self, timeout_s: float = 30.0) -> None:
        """Waits until the server answers its health check.

        Args:
            timeout_s: Seconds to wait at most.

        Raises:
            TimeoutError: It did not.
        """

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class ContainerCalls(EngineProvider[SpecT]):
    """An `EngineProvider` of containers that also has the public package's calls.

    Args:
        spec: What to run, or just its image; None where the fields say it, or ``start`` or ``start_container`` is
            given it.
        on_exit: Called when a ready replica ends by itself, from a thread of the provider's own.
        on_log: Called with the replica's name and one line, from a thread of the provider's own.
        **fields: The spec's fields, in place of a spec. Without ``image`` they hold for what ``start_container`` runs.

    Raises:
        ConfigurationError: There is no such field, or its value cannot be used; all that is wrong is named.
    """

    def __init__(
        self,
        spec: SpecT | str | None = None,
        *,
        on_exit: Callable[[ReplicaExit], None] | None = None,
        on_log: Callable[[str, str], None] | None = None,
        **fields: Any,
    ) -> None:
        if isinstance(spec, str):
            if "image" in fields:
                raise ConfigurationError(f"The image is named twice: {spec!r}, and image={fields['image']!r}.")
            spec, fields = None, {"image": spec, **fields}
        known = spec_or_fields(self.SPEC, spec, fields if "image" in fields or not fields else _with_image(fields))
        self._fields: dict[str, Any] = {}
        if spec is None and fields and "image" not in fields:
            self._fields, known = fields, None
        super().__init__(known, on_exit=on_exit, on_log=on_log)

    @property
    def spec(self) -> SpecT:
        """What is run.

        Raises:
            ConfigurationError: Nobody said.
        """
        if self._spec is None:
            raise ConfigurationError(
                f"{type(self).__name__} has nothing to run: give it a {self.SPEC.__name__}, or an image, such as "
                "image='echo-env:latest'."
            )
        return self._spec

    async def _health(self, replica: Replica, timeout_s: float, ended: Callable[[], bool]) -> str:
        last = await super()._health(replica, timeout_s, ended)
        if not last or ended():
            return last
        hint = listening_elsewhere(self.spec.port, await self._last_lines(replica))
        return f"{last}; {hint}" if hint else last

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> str:
        """Starts what the spec says, and returns the first server's address, which need not answer yet.

        Args:
            image: The image to run; that of the provider's spec if None.
            port: The port of the engine's machine to reach the server by; chosen by the engine if None.
            env_vars: Environment variables over those of the provider's spec.
            **fields: Fields over those of the provider's spec.

        Raises:
            ConfigurationError: A field is unknown, or a value cannot be used.
            ProviderError: Containers run already, or the engine does not answer.
        """
        return run_sync(self._start_all, self._spec_over(image, port, env_vars, fields), False).base_url

    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        """Waits until the server answers its health check.

        Args:
            base_url: What ``start_container`` returned.
            timeout_s: Seconds to wait at most.

        Raises:
            DeadlineExceededError: It did not, or it has ended; also a TimeoutError. It carries the server's last lines.
            ProviderError: The provider runs nothing at that address.
        """
        kept = next((each for each in self._kept.values() if each.replica.base_url == base_url), None)
        if kept is None:
            raise ProviderError(f"this provider runs no container at {base_url}; call start_container first")
        try:
            run_sync(self._engine.call, self._await_ready, kept, timeout_s)
        except ServerStartError as error:
            raise DeadlineExceededError(str(error), phase="start") from None

    def stop_container(self) -> None:
        """Ends what ``start_container`` started, and removes it. May be called again."""
        self.stop_sync()

    def close(self) -> None:
        """Does what ``stop_container`` does."""
        self.stop_sync()

    def __enter__(self) -> Self:
        # With nothing to run yet the block is one of the old kind: `start_container` is called within it.
        return self if self._spec is None else super().__enter__()

    def _spec_over(
        self, image: str | None, port: int | None, env_vars: Mapping[str, str] | None, fields: Mapping[str, Any]
    ) -> SpecT:
        """The spec, with what one call asks for over it."""
        known = self._fields if self._spec is None else self._spec.model_dump(exclude_unset=True)
        wanted = {key: value for key, value in known.items() if key != "type"} | dict(fields)
        if image is not None:
            wanted["image"] = image
        if port is not None:
            if "published_port" not in self.SPEC.model_fields:
                raise ConfigurationError(
                    f"port={port}, but {type(self).__name__} cannot choose the port by which a server is reached: "
                    "leave it out. The port inside the container is the field of that name of the provider's spec."
                )
            wanted["published_port"] = port
        if env_vars is not None:
            wanted["env_vars"] = {**variables_of(wanted.get("env_vars", {})), **variables_of(env_vars)}
        if "image" not in wanted:
            raise ConfigurationError(
                f"{type(self).__name__} has nothing to run: name an image, such as image='echo-env:latest'."
            )
        made = spec_or_fields(self.SPEC, None, wanted)
        assert made is not None
        return made


def _with_image(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as they can be checked before the image is known."""
    return {"image": _NO_IMAGE, **fields}


ContainerProvider.register(ContainerCalls)
