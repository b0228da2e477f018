"""The event loop that all blocking clients of a process share."""

from __future__ import annotations

from anyio.from_thread import BlockingPortal

from openenv_trl.background import BackgroundLoop

_loop = BackgroundLoop("openenv-clients")


def background_portal() -> BlockingPortal:
    """Return the way into the shared event loop; the first call starts it."""
    return _loop.portal()
