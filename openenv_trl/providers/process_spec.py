"""What a server that runs as a child process is given."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from openenv_trl.providers.spec import ServerSpec


class ProcessSpec(ServerSpec, frozen=True):
    """Servers that run as child processes."""

    type: Literal["process"] = "process"
    environment: str | list[str] = Field(min_length=1)
    """A folder with an ``openenv.yaml``, ``module:app``, or a command as a list with ``{port}`` or ``{fd}`` in it."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """The port to listen on, with one replica; a free one if None."""
    cwd: Path | None = None
    """The folder to run the servers in."""
    max_restarts: int = Field(default=0, ge=0)
    """How often a replica that ends by itself is started again, at the same address."""
    hold_port: bool = True
    """Whether a server started with ``{port}`` finds its port reserved. It must then bind with SO_REUSEADDR."""

    @model_validator(mode="after")
    def _check(self) -> ProcessSpec:
        if self.port is not None and self.replicas > 1:
            raise ValueError(f"port={self.port} is for one server: leave it out, or set replicas=1")
        return self
