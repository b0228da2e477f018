"""The names of ``openenv.core.containers.runtime.uv_provider``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openenv_trl.compat._names import names_of
from openenv_trl.errors import DeadlineExceededError, ProviderError, ServerStartError
from openenv_trl.providers.container_calls import RuntimeProvider
from openenv_trl.providers.uv import UVProvider as OwnProvider
from openenv_trl.providers.uv import UVSpec

_APP = "server.app:app"
_EVERYWHERE = "0.0.0.0"


class UVProvider(RuntimeProvider):
    """One server of a Python project under ``uv run``, with the public package's calls; all of them block.

    `openenv_trl.providers.uv.UVProvider` has this package's calls, replicas, and more settings.

    Args:
        project_path: The project's folder, or a git address that begins with ``git+``.
        app: The application, as ``module:name``; the default gives way to what the project's ``openenv.yaml`` says.
        host: The address to listen on.
        reload: Whether the server starts again when the project's files change.
        env_vars: Environment variables of the server.
        context_timeout_s: Seconds for the server to be ready, once the project's packages are installed.
    """

    def __init__(
        self,
        *,
        project_path: str | Path,
        app: str = _APP,
        host: str = _EVERYWHERE,
        reload: bool = False,
        env_vars: Mapping[str, str] | None = None,
        context_timeout_s: float = 60.0,
    ) -> None:
        self._provider = OwnProvider(
            project_path=project_path,
            app=None if app == _APP else app,
            host=host,
            reload=reload,
            env_vars=dict(env_vars or {}),
            context_timeout_s=context_timeout_s,
        )

    @property
    def base_url(self) -> str | None:
        """The server's address; None where it does not run."""
        urls = self._provider.base_urls
        return urls[0].replace(_EVERYWHERE, "localhost") if urls else None

    def start(
        self, port: int | None = None, env_vars: Mapping[str, str] | None = None, workers: int = 1, **kwargs: Any
    ) -> str:
        """Installs the project's packages, starts the server, waits until it answers, and returns its address.

        Args:
            port: The port to listen on; a free one if None.
            env_vars: Environment variables over those of the provider.
            workers: Processes that serve.
            **kwargs: Other fields of a `UVSpec`.

        Raises:
            ServerStartError: It could not be started; the error has its last lines.
            ProviderError: It runs already, or the port is taken.
        """
        known = self._provider.spec
        over = {"port": port, "workers": workers, "env_vars": {**known.env_vars, **(env_vars or {})}, **kwargs}
        self._provider.start_sync(UVSpec.model_validate({**known.model_dump(), **over}))
        assert self.base_url is not None
        return self.base_url

    def wait_for_ready(self, timeout_s: float = 60.0) -> None:
        """Waits until the server answers its health check.

        Args:
            timeout_s: Seconds to wait at most.

        Raises:
            DeadlineExceededError: It did not; also a TimeoutError.
            ProviderError: It was not started.
        """
        if not self._provider.replicas:
            raise ProviderError("the server was not started; call start first")
        try:
            self._provider.wait_ready_sync(timeout_s=timeout_s)
        except ServerStartError as error:
            raise DeadlineExceededError(str(error), phase="start") from error

    def stop(self) -> None:
        """Ends the server, and removes what was fetched. May be called again."""
        self._provider.stop_sync()


__all__ = ["RuntimeProvider", "UVProvider"]

__getattr__ = names_of(__name__)
