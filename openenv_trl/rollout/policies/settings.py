"""How an inference server is talked to: connections, deadlines, patience, credentials."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class EndpointSettings(BaseModel):
    """Of every policy that asks a server over HTTP. Seconds are wall-clock seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_connections: int = Field(default=512, ge=1)
    """Requests under way at once, over all servers; others wait their turn here. As many as episodes are usual: an
    inference server makes batches of what it has, and queues the rest itself."""
    connect_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds to open a connection. A server that is up takes one in milliseconds, also over an ocean."""
    request_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds from sending a prompt to having its completion. Long, because a full server queues; an episode's own
    deadline is usually nearer."""
    keepalive_s: float = Field(default=4.0, ge=0)
    """Seconds that an idle connection is kept for the next turn. Below the 5 s after which most servers close it."""
    away_timeout_s: float = Field(default=120.0, ge=0)
    """Seconds that a request is tried again while no server can be reached or each answers 502, 503 or 504; after
    that the run ends. Two minutes let a server restart and load a small model."""
    busy_timeout_s: float = Field(default=120.0, ge=0)
    """Seconds that a request is tried again while it is answered with 429; after that this generation has failed."""
    backoff_s: float = Field(default=0.25, gt=0)
    """Seconds before the second try, doubled before each later one, of which a random half is left out: many
    requests that failed together shall not come back together."""
    backoff_max_s: float = Field(default=8.0, gt=0)
    """The most seconds between two tries, also where the server asks for more (``Retry-After``)."""
    api_key: SecretStr | None = None
    """Sent as ``Authorization: Bearer ...``. None sends none."""
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    """More headers of every request."""
    verify_tls: bool = True
    """Whether certificates of https servers are checked. Switch it off only for a server of your own."""
