"""What an application does when its process is one of several workers; nothing where it is the only one."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fastapi import FastAPI

from openenv_trl.server.capacity import CapacityLedger, SlotLedger
from openenv_trl.server.host import SessionHost
from openenv_trl.server.workers.place import WorkerPlace, current_place

if TYPE_CHECKING:
    from openenv_trl.server.workers.affinity import Affinity
    from openenv_trl.server.workers.memory import SharedMemory

logger = logging.getLogger("openenv_trl.server")

_applications = itertools.count()


def ledger_here(max_sessions: int) -> SlotLedger:
    """Return the slots of an application: this process's own, or those that all workers share."""
    place = current_place()
    if place is None:
        return CapacityLedger(max_sessions)
    from openenv_trl.server.workers.ledger import SharedLedger

    # Each worker makes its applications in the same order, so the number stands for the same one in all of them.
    return SharedLedger(memory_of(place), next(_applications), place.index, max_sessions)


def join_workers(app: FastAPI, host: SessionHost, longest_body: int) -> None:
    """Have the sessions' ids tell this worker, and each request answered by the worker that has its session.

    Args:
        app: The application; ``worker`` and ``affinity`` on its state are None where there is one process only.
        host: Its sessions.
        longest_body: Bytes of a request's body that are looked at for a session's id.
    """
    place = current_place()
    app.state.worker = app.state.affinity = None
    if place is None:
        if started_by_uvicorn_with_workers(sys.argv, os.environ):
            logger.warning(
                "uvicorn runs several workers that know nothing of one another: a session that was opened over HTTP is "
                "found by one of them only, and each allows max_concurrent_envs sessions. "
                "Run `python -m openenv_trl.server TARGET --workers N` instead."
            )
        return
    from openenv_trl.server.workers.ledger import SharedLedger

    if isinstance(host.ledger, SharedLedger):
        host.ledger.count_waiting = lambda: host.metrics.waiting
    affinity = affinity_of(place)
    host.worker, host.workers = place.index, place.count
    host.new_session_id = affinity.new_session_id
    install_affinity(app, affinity, longest_body)


def started_by_uvicorn_with_workers(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command line is that of uvicorn with more than one worker.

    Example:
        >>> started_by_uvicorn_with_workers(["/bin/uvicorn", "game:app", "--workers", "4"], {})
        True
    """
    words = " ".join(arguments).replace("=", " ").split()
    if not words or "uvicorn" not in words[0]:
        return False
    number = environment.get("WEB_CONCURRENCY", "1")
    if "--workers" in words[:-1]:
        number = words[words.index("--workers") + 1]
    return number.isdigit() and int(number) > 1


def install_affinity(app: FastAPI, affinity: Affinity, longest_body: int) -> None:
    """Put the forwarding of requests before an application."""
    from openenv_trl.server.workers.forwarding import AffinityMiddleware

    app.state.worker = affinity.place.index
    app.state.affinity = affinity
    app.add_middleware(AffinityMiddleware, affinity=affinity, longest_body=longest_body)


@functools.lru_cache(maxsize=1)
def memory_of(place: WorkerPlace) -> SharedMemory:
    """Return what the workers share; all that is in this process share one mapping of it."""
    from openenv_trl.server.workers.memory import SharedMemory

    return SharedMemory(place.ledger_fd, place.count)


def affinity_of(place: WorkerPlace) -> Affinity:
    """Return this worker's view of who owns what."""
    from openenv_trl.server.workers.affinity import Affinity

    return Affinity(place, memory_of(place))
