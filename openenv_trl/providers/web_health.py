"""Asks servers anywhere whether they are ready: over TLS, under a path, with headers, past a proxy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import anyio
import httpx

# A request may wait this long for its answer; a server behind a gateway is slower than one on this machine.
_ATTEMPT_S = 10.0
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_HERE = ("localhost", "127.0.0.1", "[::1]")
_SCHEMES = {"ws": "http", "wss": "https"}


class WebHealth:
    """One HTTP client for all questions, on the event loop that it was made on."""

    def __init__(self) -> None:
        # No proxy stands between this machine and itself, whatever the environment variables say.
        self.http = httpx.AsyncClient(timeout=_ATTEMPT_S, mounts={f"all://{host}": None for host in _HERE})

    async def close(self) -> None:
        """Let go of all connections."""
        await self.http.aclose()

    async def ask(self, url: str, headers: Mapping[str, str], *, page_is_no_answer: bool = False) -> str:
        """Ask once; returns "" where the answer was 200, otherwise what came instead.

        Args:
            url: What to ask for, such as ``https://host/health``.
            headers: Sent with the request.
            page_is_no_answer: Whether an HTML page does not count: a host shows one in place of a server that sleeps.
        """
        try:
            response = await self.http.get(url, headers=dict(headers))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{type(error).__name__}: {error}".rstrip(": ")
        if response.status_code == 200:
            page = page_is_no_answer and "html" in response.headers.get("Content-Type", "")
            return "answered with a page of its host's" if page else ""
        return f"answered {response.status_code} {response.reason_phrase}".rstrip()

    async def wait(self, url: str, headers: Mapping[str, str], timeout_s: float, ended: Callable[[], bool]) -> str:
        """Ask again and again until the server is ready, has ended, or the time is up.

        Args:
            url: What to ask for.
            headers: Sent with each request.
            timeout_s: Seconds at most.
            ended: Whether the server is known to have ended.

        Returns:
            "" when it answered 200, otherwise what the last request met with.
        """
        last, pause_s = "no answer", _FIRST_PAUSE_S
        with anyio.move_on_after(timeout_s):
            while not ended():
                last = await self.ask(url, headers)
                if not last:
                    return ""
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
        return last


def http_address(url: str) -> str:
    """Return a server's address as one of HTTP, without a slash at its end: ``ws://h:1/ws`` is ``http://h:1``."""
    given = url.strip()
    scheme, _, rest = (given if "://" in given else f"http://{given}").partition("://")
    path = rest.rstrip("/").removesuffix("/ws").rstrip("/")
    return f"{_SCHEMES.get(scheme.lower(), scheme)}://{path}"
