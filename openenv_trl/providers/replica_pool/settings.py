"""What a pool of replicas may do: how many there are, when they come and go, and when one is taken for dead."""

from __future__ import annotations

from pydantic import Field, model_validator
from typing_extensions import Self

from openenv_trl.providers.settings import Settings


class PoolSettings(Settings, frozen=True):
    """Settings of a `ReplicaPool`: the ``pool`` of a settings file."""

    min_replicas: int = Field(default=1, ge=0)
    """Replicas that run at least, also while nobody needs them; 0 lets an idle pool run nothing."""
    max_replicas: int = Field(default=4, ge=0)
    """Replicas that exist at most, those that start or stop included. Servers given by their address do not count."""
    sessions_per_replica: int = Field(default=64, ge=1)
    """Sessions to hold on each server at most; also the size by which the number of replicas is reckoned. A server
    that refuses more is reckoned with what it allowed."""
    warm_sessions: int = Field(default=0, ge=0)
    """Free sessions to keep ready beyond those in use, so that a burst of callers finds replicas that run."""
    scale_up_wait_s: float = Field(default=1.0, ge=0)
    """Seconds that the first caller in the queue has waited before replicas are added for the queue. Where no server
    is there at all, one is started at once."""
    idle_s: float = Field(default=60.0, ge=0)
    """Seconds for which fewer replicas would have been enough before those beyond are removed. A training step, in
    which no episode runs, should be shorter, or each batch begins with a start."""
    max_starting: int = Field(default=8, ge=1)
    """Replicas that start at the same time at most."""
    starts_per_second: float | None = Field(default=None, gt=0)
    """Starts in a second at most, evenly spaced; None for no limit. For engines that serve others too."""
    start_failures: int = Field(default=3, ge=1)
    """Starts in a row that may fail before callers that wait are told the error. A replica that dies right after its
    start counts as one. Mistakes in the settings, and what keeps the first server from running at all, such as a
    missing image, are told at once."""
    start_back_off_s: float = Field(default=1.0, gt=0)
    """Seconds of the pause after a failed start. It doubles with each in a row; chance takes up to a half off."""
    longest_start_back_off_s: float = Field(default=30.0, gt=0)
    """Seconds of a pause between failed starts at most; also the age up to which a death counts as a failed start."""
    health_interval_s: float = Field(default=10.0, gt=0)
    """Seconds between two health checks of a server. Deaths that the engine tells of are noticed at once, without."""
    health_timeout_s: float = Field(default=5.0, gt=0)
    """Seconds within which a health check must be answered."""
    health_failures: int = Field(default=3, ge=1)
    """Health checks in a row that may fail before a replica is taken for dead and replaced, with the episodes on it."""
    max_age_s: float | None = Field(default=None, gt=0)
    """Seconds after which a replica gets no new sessions and is replaced, one at a time; None for never. For servers
    that leak."""
    connect_timeout_s: float = Field(default=30.0, gt=0)
    """Seconds after which an attempt to open a session is given up and another server is tried."""
    close_timeout_s: float = Field(default=2.0, gt=0)
    """Seconds that the closing of a session may take before it is left to itself."""
    server_patience_s: float = Field(default=30.0, gt=0)
    """Seconds for which no server at all may answer, and none start, before callers are told."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas={self.min_replicas} is more than max_replicas={self.max_replicas}; raise max_replicas"
            )
        return self

    @property
    def max_sessions(self) -> int:
        """Sessions that all replicas hold at most: a good ``max_concurrent_episodes``."""
        return self.max_replicas * self.sessions_per_replica
