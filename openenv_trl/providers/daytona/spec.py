"""What a sandbox of Daytona is given."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from openenv_trl.providers.spec import Bytes, ContainerSpec, Words

SNAPSHOT = "snapshot:"
DOCKERFILE = "dockerfile:"


class DaytonaSpec(ContainerSpec, frozen=True):
    """Servers in sandboxes of Daytona."""

    type: Literal["daytona"] = "daytona"
    image: str = Field(min_length=1)
    """An image of a registry that Daytona reaches, ``snapshot:name`` of a snapshot there, or ``dockerfile:path`` of a
    file here, which Daytona builds with the files that it copies."""
    command: Words | None = None
    """What serves, run in the sandbox. If None, the ``openenv.yaml`` in ``/app/env``, or else below ``/app``, says it:
    this package's server where the image has it, uvicorn where not. The image's own command is not run."""
    api_key: SecretStr | None = None
    """The key; what DAYTONA_API_KEY says if None."""
    api_url: str | None = None
    """The address of the API; what DAYTONA_API_URL says, or Daytona's own, if None."""
    target: str | None = None
    """The region; the organisation's own if None."""
    public: bool = False
    """Whether anybody reaches the server who knows its address. Otherwise requests carry a token, as a header."""
    signed_url_s: int | None = Field(default=None, gt=0)
    """For how many seconds the server's address has its token in itself, for clients that send no header. With None
    the token is a header, and holds as long as the sandbox."""
    disk: Bytes | None = None
    """Disk space; rounded up to whole GiB, as memory is."""
    gpus: int | None = Field(default=None, ge=1)
    """GPUs of each sandbox."""
    auto_stop_interval: int = Field(default=15, ge=1)
    """Minutes without any activity after which Daytona itself stops a sandbox, and deletes it: what a dead owner leaves
    goes so at the latest. A living owner keeps its sandboxes active."""
    ttl_minutes: int | None = Field(default=None, ge=1)
    """Minutes after which Daytona deletes a sandbox whatever it does; never if None."""
    create_timeout_s: float = Field(default=300.0, gt=0)
    """Seconds for a sandbox to be there, its image built or pulled, before ``ready_timeout_s`` begins."""
    ready_timeout_s: float = Field(default=120.0, gt=0)
    """Seconds within which each server must answer its health check, once its sandbox is there."""
    check_every_s: float = Field(default=5.0, gt=0)
    """Seconds between two looks at a server's process."""

    @model_validator(mode="after")
    def _check(self) -> DaytonaSpec:
        for field in ("pids", "read_only"):
            if getattr(self, field):
                raise ValueError(f"{field}: Daytona has no such limit. Leave it out")
        if self.image.startswith(SNAPSHOT):
            given = [name for name in ("cpus", "memory", "disk", "gpus") if getattr(self, name) is not None]
            if given:
                raise ValueError(f"{', '.join(given)}: a snapshot has its own resources. Leave them out")
        if not self.image.removeprefix(SNAPSHOT).removeprefix(DOCKERFILE):
            raise ValueError(f"image '{self.image}' names nothing after the colon")
        if self.image.startswith(DOCKERFILE) and not Path(self.image.removeprefix(DOCKERFILE)).expanduser().is_file():
            raise ValueError(f"image '{self.image}': there is no such file")
        if self.public and self.signed_url_s is not None:
            raise ValueError("signed_url_s is for sandboxes that are not public")
        return self
