"""What callers of a pool are told when they get no session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from openenv_trl.errors import (
    ConnectionFailedError,
    DeadlineExceededError,
    OpenEnvError,
    SessionStateError,
)
from openenv_trl.providers.pool_decisions import Outlook
from openenv_trl.providers.pool_server import ServerSlots

ErrorT = TypeVar("ErrorT", bound=OpenEnvError)


def closed_error() -> SessionStateError:
    """What every caller of a closed pool gets."""
    return SessionStateError("the session pool is closed; make a new one for further sessions", phase="connect")


def late_error(
    waited_s: float, servers: Sequence[ServerSlots], outlook: Outlook, *, is_down: bool, in_use: int, waiting: int
) -> OpenEnvError:
    """Why a caller got no session in time.

    Args:
        waited_s: For how long it waited.
        servers: Those that the pool has.
        outlook: What is known of those that come.
        is_down: Whether no server answers, and none comes.
        in_use: Sessions that callers have.
        waiting: Callers that wait, this one included.
    """
    waited = f"{waited_s:.3g} s"
    if not servers and outlook.more_come:
        return DeadlineExceededError(
            f"No environment server was ready within {waited} ({outlook.text or 'they start'}). Give callers a later "
            "deadline, or keep servers running for them: min_replicas or warm_sessions.",
            phase="connect",
        )
    if is_down:
        causes = "; ".join(f"{server.url}: {server.last_failure}" for server in servers)
        return ConnectionFailedError(
            f"No environment server could be reached for {waited} ({causes or outlook.text or 'the pool has none'}). "
            "Check that the servers run and that their addresses are right.",
            phase="connect",
        )
    usage = ", ".join(server.usage() for server in servers)
    if not in_use and not any(server.refusals for server in servers):
        return ConnectionFailedError(
            f"The servers did not open a session within {waited} [{usage}]. Look at whether they are stuck or "
            "overloaded, or give them longer with a later deadline.",
            phase="connect",
        )
    coming = f" {outlook.text[0].upper()}{outlook.text[1:]}." if outlook.text else ""
    return DeadlineExceededError(
        f"No session became free within {waited}: {in_use} sessions are in use, {waiting} "
        f"callers wait [{usage}].{coming} Raise the deadline, sessions_per_server, the servers' max_concurrent_envs, "
        "or the number of servers.",
        phase="connect",
    )


def one_more(error: ErrorT) -> ErrorT:
    """A copy of an error: one object that many callers raised would collect the traceback of each."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error
    return copy
