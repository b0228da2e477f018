"""What the agent does and what it sees: a call of a tool, and the tool's result. Both types are the library's own."""

from __future__ import annotations

from openenv_trl.types import CallToolAction
from openenv_trl.wire.tools import CallToolObservation

__all__ = ["CallToolAction", "CallToolObservation"]
