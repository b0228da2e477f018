"""Output as it streams: its beginning and its end are kept, and what is between them is counted."""

from __future__ import annotations


class CappedOutput:
    """Keeps the first and the last bytes of a stream.

    Args:
        limit: Bytes that are kept of it.
    """

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take what came next."""
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._tail_limit:
                del self._tail[: -self._tail_limit]

    def text(self) -> str:
        """Return what is kept, with a line that tells how much is not."""
        tail = bytes(self._tail[-self._tail_limit :])
        missing = self.total - len(self._head) - len(tail)
        if missing:
            note = f"\n[... {missing} bytes left out ...]\n".encode()
            return (bytes(self._head) + note + tail).decode("utf-8", "replace")
        return (bytes(self._head) + tail).decode("utf-8", "replace")
