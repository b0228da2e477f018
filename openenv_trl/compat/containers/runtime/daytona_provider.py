"""The names of ``openenv.core.containers.runtime.daytona_provider``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from openenv_trl.compat._names import names_of
from openenv_trl.providers.container_calls import ContainerProvider
from openenv_trl.providers.daytona import DaytonaProvider as OwnProvider
from openenv_trl.providers.daytona import DaytonaSpec
from openenv_trl.providers.daytona.spec import DOCKERFILE

_GIB = 1024**3
_RESOURCES = {"cpu": "cpus", "memory": "memory", "disk": "disk", "gpu": "gpus"}


class DaytonaProvider(OwnProvider):
    """This package's `DaytonaProvider`, made with the public package's arguments.

    Args:
        image: The image; ``start_container`` may name another.
        env_vars: Environment variables of the server.
        api_key: The key; what DAYTONA_API_KEY says if None.
        public: Whether anybody may reach the server who knows its address.
        resources: The SDK's ``Resources``.
        auto_stop_interval: Minutes of inactivity after which Daytona stops and deletes a sandbox.
        target: The region.
        on_snapshot_create_logs: Called with each line of an image's build, and of the server.
        cmd: What serves, as a shell's command.
        create_timeout: Seconds for a sandbox to be there.
        **fields: Other fields of a `DaytonaSpec`.
    """

    def __init__(
        self,
        spec: DaytonaSpec | None = None,
        *,
        image: str | None = None,
        env_vars: Mapping[str, str] | None = None,
        api_key: str | None = None,
        public: bool = False,
        resources: Any = None,
        auto_stop_interval: int = 15,
        target: str | None = None,
        on_snapshot_create_logs: Callable[[str], None] | None = None,
        cmd: str | None = None,
        create_timeout: float = 300,
        **fields: Any,
    ) -> None:
        if spec is not None:
            super().__init__(spec, **fields)
            return
        given: dict[str, Any] = {
            "image": image,
            "env_vars": None if env_vars is None else dict(env_vars),
            "api_key": api_key,
            "target": target,
            "command": None if cmd is None else ["sh", "-c", cmd],
        }
        for name, field in _RESOURCES.items():
            amount = getattr(resources, name, None)
            given[field] = amount * _GIB if amount is not None and name in ("memory", "disk") else amount
        if on_snapshot_create_logs is not None:
            take = on_snapshot_create_logs

            def on_log(_name: str, line: str) -> None:
                take(line)

            fields.setdefault("on_log", on_log)
        super().__init__(
            public=public,
            auto_stop_interval=auto_stop_interval,
            create_timeout_s=create_timeout,
            **{name: value for name, value in given.items() if value is not None},
            **fields,
        )

    @staticmethod
    def image_from_dockerfile(dockerfile_path: str | Path) -> str:
        """Returns the image's name for a Dockerfile, which Daytona builds with the files that it copies.

        Args:
            dockerfile_path: The file.
        """
        return f"{DOCKERFILE}{Path(dockerfile_path).expanduser().resolve()}"


__all__ = ["ContainerProvider", "DaytonaProvider"]

__getattr__ = names_of(__name__)
