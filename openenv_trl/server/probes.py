"""``/ready`` and ``/capacity``: whether a server takes new sessions, and how many.

``/health`` says that the process lives, and stays 200 to its end. ``/ready`` is 503 until the first session finds all
ready, and again as soon as the server drains, so that whatever spreads the load goes elsewhere. In a server of several
workers both speak of the whole server.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response

from openenv_trl.server.host import SessionHost
from openenv_trl.wire.codec import encode


def add_probes(app: FastAPI, host: SessionHost) -> None:
    """Give an application ``/ready`` and ``/capacity``.

    Args:
        app: The application.
        host: Whose sessions they speak of.
    """

    async def ready() -> Response:
        """Whether new sessions are taken: 200, or 503 while the server starts or drains."""
        if host.draining:
            return _json({"ready": False, "reason": "The server is draining: it takes no new sessions."}, 503)
        if host.starting:
            return _json({"ready": False, "reason": "The server is starting."}, 503)
        return _json({"ready": True})

    async def capacity() -> Response:
        """How many sessions there are and can be, and how many clients wait for one."""
        return _json(capacity_of(app, host))

    app.add_api_route("/ready", ready, methods=["GET"], response_class=Response)
    app.add_api_route("/capacity", capacity, methods=["GET"], response_class=Response)


def capacity_of(app: FastAPI, host: SessionHost) -> dict[str, Any]:
    """Return what ``/capacity`` tells, of the whole server."""
    status = host.status
    affinity = getattr(app.state, "affinity", None)
    return {
        "active_sessions": status.active_sessions,
        "max_sessions": status.max_sessions,
        "available_slots": max(0, status.available_slots),
        "waiting": getattr(host.ledger, "waiting", host.metrics.waiting),
        "draining": host.draining,
        "workers": 1 if affinity is None else affinity.place.count,
    }


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(encode(content), status_code=status, media_type="application/json")
