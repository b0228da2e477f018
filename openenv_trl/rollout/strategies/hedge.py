"""The settings of hedging: a slow call is made a second time, in another session, and the first answer wins."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class HedgeSlowCalls(BaseModel):
    """A ``reset`` or ``step`` that takes long is repeated in a second session, after the actions so far.

    It helps where slowness is a matter of the server or of chance, and costs the environment's work twice. Only
    environments whose episodes can be repeated (equal seeds and actions give equal observations, and nothing outside is
    changed) can be hedged; they say so by ``Environment.REPEATABLE = True``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["hedge"] = "hedge"
    after_s: float = Field(default=5.0, ge=0)
    """Seconds that a call may take before it is made again elsewhere. A good value is what 95 of 100 calls stay
    below."""
    repeatable: bool | None = None
    """Whether the environment's episodes can be repeated. None asks its server (``GET /promises``); True or False says
    it in its place, for servers that do not know the question."""
    max_hedges: int = Field(default=2, ge=1)
    """Second sessions in one episode at most: an environment that is always slow is not helped by more load."""
