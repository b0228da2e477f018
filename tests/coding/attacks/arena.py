"""Where the attacks take place: a program that holds a sandbox, runs what it reads, and says what came of it.

It is started with limits of its own, so that a hole in the sandbox harms this program and not the machine. It reads a
JSON object a line: ``kind`` and ``code``; it writes one a line: what the attack got, and whether all is well after it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import anyio
import coding_env
from coding_env.sandbox.launcher import Sandbox
from coding_env.sandbox.limits import Limits
from coding_env.sandbox.session import SandboxSession
from coding_env.server.grading import grade

LIMITS = Limits(
    run_timeout_s=1.0, cpu_s=6, memory_mb=192, workspace_mb=4, file_mb=2, processes=8, output_bytes=4096, discarded_mb=8
)
SECRET = "the-secret-of-the-server"
TESTS = [f"assert triple({n}) == {3 * n}" for n in (2, 7, 11, 40)]
CALM_S = 60.0  # for what must work after an attack, on a busy machine


class Arena:
    def __init__(self, disabled: list[str]) -> None:
        os.environ["SERVER_SECRET"] = SECRET
        self.folder = Path(tempfile.mkdtemp(prefix="coding-attack-"))
        os.chmod(self.folder, 0o755)
        self.secret_file = self.folder / "secret.txt"
        self.secret_file.write_text(SECRET)
        self.connections = 0
        self.port = self._listen()
        self.unix_path = str(self.folder / "listener")
        self._listen(self.unix_path)
        self.sandbox = Sandbox(LIMITS, warm=1, disabled=disabled)

    def _listen(self, path: str | None = None) -> int:
        listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        listener.bind(path or ("127.0.0.1", 0))
        if path:
            os.chmod(path, 0o777)
        listener.listen()

        def accept() -> None:
            while True:
                listener.accept()[0].close()
                self.connections += 1

        threading.Thread(target=accept, daemon=True).start()
        return 0 if path else listener.getsockname()[1]

    async def attack(self, case: dict[str, Any]) -> dict[str, Any]:
        neighbour = self.sandbox.take()
        left = await self.calm(neighbour, "open('neighbour.txt', 'w').write('mine'); import os; os.getcwd()")
        place = json.loads(left)
        code = case["code"]
        for name, value in {
            "@PORT@": str(self.port), "@UNIX@": self.unix_path, "@SECRET_FILE@": str(self.secret_file),
            "@SECRET@": SECRET, "@SERVER_PID@": str(os.getpid()), "@NEIGHBOUR@": place,
            "@HOME@": str(Path(coding_env.__path__[0])),
        }.items():  # fmt: skip
            code = code.replace(name, value)
        result = await (self._solution(code) if case["kind"] == "solution" else self._run(code))
        result["connections"] = self.connections
        result["secret_kept"] = self.secret_file.read_text() == SECRET
        result["neighbour"] = await self.calm(neighbour, "open('neighbour.txt').read()")
        neighbour.close()
        fresh = self.sandbox.take()
        result["fresh"] = await self.calm(fresh, "import os, math; print(sorted(os.listdir('.')), math.sqrt(4))")
        fresh.close()
        result["processes"] = await self._processes_left()
        return result

    async def _run(self, code: str) -> dict[str, Any]:
        session = self.sandbox.take()
        reply = await session.request({"op": "run", "code": code}, LIMITS.run_timeout_s)
        result: dict[str, Any] = {
            "stdout": reply.stdout, "stderr": reply.stderr, "failure": reply.failure, "timed_out": reply.timed_out,
            "exit_code": (reply.data or {}).get("exit_code"),
        }  # fmt: skip
        result["usable"] = session.usable
        result["afterwards"] = await self.calm(session, "print(40 + 2)") if session.usable else ""
        session.close()
        return result

    async def _solution(self, code: str) -> dict[str, Any]:
        verdict = await grade(self.sandbox, {"solution.py": code}, TESTS, timeout_s=20, test_timeout_s=1)
        return {"passed": verdict.passed, "outcomes": verdict.outcomes, "stdout": "", "stderr": ""}

    async def calm(self, session: SandboxSession, code: str) -> str:
        reply = await session.request({"op": "run", "code": code}, CALM_S)
        return reply.stdout.strip() or f"{reply.failure} {reply.stderr}"

    async def _processes_left(self) -> int:
        """Processes of the sandbox once the killed are gone: its first, and two of the session that is kept ready."""
        count = 0
        for _ in range(600):
            count = sum(1 for _ in _descendants(self._zygote_session()))
            if count <= 3:
                break
            await anyio.sleep(0.05)
        return count

    def _zygote_session(self) -> int:
        process = self.sandbox._zygote  # pyright: ignore[reportPrivateUsage]
        assert process is not None
        return process.pid


def _descendants(root: int) -> list[int]:
    """The process and all below it, by who started them."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX":
                parents[int(entry.name)] = int(fields[1])
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


async def main() -> None:
    arena = Arena(json.loads(sys.argv[1]))
    print(json.dumps({"layers": arena.sandbox.report.layers}), flush=True)
    for line in sys.stdin:
        with anyio.fail_after(120):
            answer = await arena.attack(json.loads(line))
        print(json.dumps(answer), flush=True)
    arena.sandbox.close()
    shutil.rmtree(arena.folder)


if __name__ == "__main__":
    anyio.run(main)
