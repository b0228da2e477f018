"""What attacks are aimed at: listeners, a secret file, and words for them in an attack's code."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from pathlib import Path

SECRET = "the-secret-of-the-server"


class Traps:
    """Listeners on the loopback and a secret file, which no attack may reach.

    Attributes:
        connections: How often somebody connected.
    """

    def __init__(self) -> None:
        os.environ["SERVER_SECRET"] = SECRET
        self.folder = Path(tempfile.mkdtemp(prefix="coding-attack-"))
        os.chmod(self.folder, 0o755)
        self.secret_file = self.folder / "secret.txt"
        self.secret_file.write_text(SECRET)
        self.connections = 0
        self.unix_path = str(self.folder / "listener")
        self.abstract_name = f"coding-attack-{os.getpid()}"
        self.port = self._listen(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        self._listen(socket.AF_UNIX, self.unix_path)
        os.chmod(self.unix_path, 0o777)
        self._listen(socket.AF_UNIX, "\0" + self.abstract_name)

    def _listen(self, family: int, address: object) -> socket.socket:
        listener = socket.socket(family)
        listener.bind(address)  # pyright: ignore[reportArgumentType]
        listener.listen()

        def accept() -> None:
            while True:
                listener.accept()[0].close()
                self.connections += 1

        threading.Thread(target=accept, daemon=True).start()
        return listener

    def set(self) -> None:
        """Have the traps as they were, whatever an attack before did to them."""
        self.connections = 0
        self.secret_file.write_text(SECRET)

    @property
    def secret_kept(self) -> bool:
        """Whether the secret file is as it was."""
        try:
            return self.secret_file.read_text() == SECRET
        except OSError:
            return False

    def aimed(self, code: str, neighbour: str, home: str) -> str:
        """The attack's code with the targets' names in it.

        Args:
            code: With words such as ``@PORT@``.
            neighbour: The folder of another session.
            home: The folder of the server's package.
        """
        for word, value in {
            "@PORT@": str(self.port), "@UNIX@": self.unix_path, "@SECRET_FILE@": str(self.secret_file),
            "@SECRET@": SECRET, "@SERVER_PID@": str(os.getpid()), "@NEIGHBOUR@": neighbour, "@HOME@": home,
            "@ABSTRACT@": self.abstract_name,
        }.items():  # fmt: skip
            code = code.replace(word, value)
        return code


def processes() -> dict[int, int]:
    """All processes that there are to see and that have not ended, each with the one that started it."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX":
                found[int(entry.name)] = int(fields[1])
    return found


def below(root: int) -> list[int]:
    """The process and all that descend from it."""
    parents = processes()
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found
