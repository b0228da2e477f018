"""The queue that the trainer takes rows from: TRL's ``rollout_buffer``, which can be cleared of rows grown too old.

Its size is not bounded here: no group is begun whose rows would have no place (`GroupGate`), so putting never waits and
a full buffer cannot hold up the event loop.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any


class RolloutBuffer(queue.Queue[Any]):
    """A ``queue.Queue`` of rows.

    Args:
        on_taken: Called in the consumer's thread after each row that is taken; must neither block nor raise.
    """

    def __init__(self, on_taken: Callable[[], None]) -> None:
        super().__init__()
        self._on_taken = on_taken

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next row, as ``queue.Queue.get``."""
        row = super().get(block, timeout)
        self._on_taken()
        return row

    def drop_older(self, version: int) -> int:
        """Take out the rows whose ``model_version`` is older than this; how many they were."""
        with self.mutex:
            kept = [row for row in self.queue if row.model_version >= version]
            dropped = len(self.queue) - len(kept)
            self.queue.clear()
            self.queue.extend(kept)
        return dropped
