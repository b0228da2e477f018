"""What to run for one server: an environment folder with this package's own server, or any command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openenv_trl.errors import ConfigurationError


@dataclass(frozen=True)
class ServerCommand:
    """A command whose words may hold ``{port}``, ``{host}`` and ``{fd}``."""

    words: tuple[str, ...]
    name: str

    @classmethod
    def of(cls, command: str | Path | Sequence[str], name: str | None) -> ServerCommand:
        """Reads what a user gives: a folder, ``module:app``, ``gymnasium:NAME``, or the words of a command.

        Raises:
            ConfigurationError: It is none of these.
        """
        if not isinstance(command, (str, Path)):
            words = tuple(str(word) for word in command)
            if not words:
                raise ConfigurationError("the command is empty; pass the program and its arguments")
            return cls(words, name or Path(words[0]).name)
        text = str(command)
        folder = Path(command)
        if folder.is_dir():
            if not (folder / "openenv.yaml").is_file():
                raise ConfigurationError(f"{text} has no openenv.yaml, so it is not an environment's folder")
            text = str(folder.resolve())
            default_name = folder.resolve().name
        elif text.startswith("gymnasium:"):
            default_name = text.partition(":")[2].partition("?")[0].replace("/", "_")
        elif ":" in text and " " not in text and "/" not in text:
            default_name = text.rpartition(":")[0].rpartition(".")[2]
        else:
            raise ConfigurationError(
                f"{text!r} is neither a folder nor `module:app` nor `gymnasium:NAME`. To run another server, pass its "
                "command as a list of strings, with {port} where the port number goes."
            )
        words = (sys.executable, "-m", "openenv_trl.server", text, "--fd", "{fd}")
        return cls(words, name or default_name)

    @property
    def takes_fd(self) -> bool:
        """Whether the server gets a socket that listens already, and not a port number."""
        return any("{fd}" in word for word in self.words)

    def arguments(self, host: str, port: int, fd: int | None) -> list[str]:
        """The words with their placeholders filled."""
        # No str.format: a word may hold braces of its own, such as JSON.
        values = {"{host}": host, "{port}": str(port), "{fd}": str(fd)}
        filled = list(self.words)
        for key, value in values.items():
            filled = [word.replace(key, value) for word in filled]
        return filled
