"""Arguments of a reset that its environment does not take: dropped, as the public wire has it, but not in silence."""

from __future__ import annotations

import logging

logger = logging.getLogger("openenv_trl.server")


class DroppedArguments:
    """Tells the log of each name once."""

    def __init__(self) -> None:
        self._told_of: set[str] = set()

    def warn(self, environment_name: str, arguments: set[str], taken: frozenset[str]) -> None:
        """Some arguments were dropped.

        Args:
            environment_name: Whose reset it was.
            arguments: Their names.
            taken: The names that the reset takes.
        """
        for name in sorted(arguments - self._told_of):
            self._told_of.add(name)
            logger.warning(
                "reset of %s takes no argument '%s': it is dropped. The arguments it takes are: %s.",
                environment_name,
                name,
                ", ".join(sorted(taken)) or "none",
            )
