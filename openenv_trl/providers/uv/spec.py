"""What uv is to run, and with what."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from openenv_trl.providers.spec import ServerSpec
from openenv_trl.providers.uv.git_address import GitAddress


class UVSpec(ServerSpec, frozen=True):
    """Servers of a Python project, in environments that uv makes from what the project declares."""

    type: Literal["uv"] = "uv"
    project: Annotated[str, BeforeValidator(str)] = Field(min_length=1)
    """A folder with a ``pyproject.toml``, or a git address as pip writes one:
    ``git+https://host/repository@branch-tag-or-commit#subdirectory=folder``. Code from there runs as this user."""
    app: str | None = None
    """The application as ``module:name``; by default as the project's ``openenv.yaml`` says, or ``server.app:app``."""
    python: str | None = None
    """The Python to use, such as ``3.12``; uv's choice if None."""
    with_packages: list[str] = Field(default_factory=list[str])
    """Packages beside those that the project declares, such as ``numpy<3``."""
    extra_index: list[str] = Field(default_factory=list[str])
    """Addresses of package indexes that are looked at before the ones uv is configured with."""
    isolated: bool = True
    """Whether each server gets an environment of its own that is removed with it. Otherwise they share the project's
    ``.venv``, which is made or brought up to date there."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """The port to listen on, with one replica; a free one if None."""
    workers: int = Field(default=1, ge=1)
    """Processes that serve, in each replica."""
    reload: bool = False
    """Whether a server starts again when the project's files change; for work on an environment."""
    prepare_timeout_s: float = Field(default=900.0, gt=0)
    """Seconds to fetch the project and install its packages, before ``ready_timeout_s`` begins."""
    max_restarts: int = Field(default=0, ge=0)
    """How often a replica that ends by itself is started again, at the same address."""

    @model_validator(mode="after")
    def _check(self) -> UVSpec:
        if self.port is not None and self.replicas > 1:
            raise ValueError(f"port={self.port} is for one server: leave it out, or set replicas=1")
        if self.reload and self.workers > 1:
            raise ValueError("reload=True goes with workers=1 only")
        if self.app is not None and (self.app.startswith("-") or not all(self.app.partition(":")[::2])):
            raise ValueError(f"app='{self.app}' names no application: write it as module:name")
        GitAddress.of(self.project)  # says so where it is a wrong one
        return self
