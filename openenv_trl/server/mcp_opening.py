"""What the query of an agent's address asks for: ``/mcp?seed=7``, or ``/mcp?session_id=...``.

The query stands in the agent's configuration, where a person or a trainer writes it; the model never sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.wire.codec import decode

WAIT_S = 30.0
"""How long an agent waits for a slot where it does not say; clients' own patience is a minute, as a rule."""

_LONGEST_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Opening:
    """How an agent's session begins.

    Attributes:
        session_id: A trainer's session to be attached to; None for one of its own.
        wait_s: How long to wait for a slot.
        reset: The arguments of the reset that begins its episode.
    """

    session_id: str | None = None
    wait_s: float = WAIT_S
    reset: Mapping[str, Any] = field(default_factory=dict[str, Any])


def opening_of(query: Mapping[str, str]) -> Opening:
    """Return what a query asks for.

    ``session_id`` attaches, ``wait_s`` waits; ``worker`` chooses a server process. All else are arguments of ``reset``:
    ``episode_id`` is text, others are read as JSON where they are JSON (``seed=7`` is a number), else as text.

    Raises:
        ConfigurationError: A value cannot be what its name says.
    """
    rest = {name: text for name, text in query.items() if name not in ("session_id", "wait_s", "worker")}
    arguments = {name: text if name == "episode_id" else _value(text) for name, text in rest.items()}
    seed = arguments.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigurationError(f"seed={rest['seed'][:40]!r} in the query of /mcp must be an integer from 0.")
    session_id = query.get("session_id") or None
    if session_id is not None and rest:
        raise ConfigurationError(
            f"session_id in the query of /mcp attaches to a session that its trainer resets: leave out "
            f"{', '.join(sorted(rest))}."
        )
    return Opening(session_id, _seconds(query.get("wait_s")), arguments)


def _value(text: str) -> Any:
    try:
        return decode(text)
    except ValueError:
        return text


def _seconds(text: str | None) -> float:
    if text is None:
        return WAIT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_WAIT_S:
        raise ConfigurationError(
            f"wait_s={text[:40]!r} in the query of /mcp must be seconds, from 0 to {_LONGEST_WAIT_S:g}."
        )
    return seconds
