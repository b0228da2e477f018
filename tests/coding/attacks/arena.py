"""Where the attacks take place: a program that holds a sandbox, runs what it reads, and says what came of it.

It is started inside of `outer_limits`, so that a hole in the sandbox harms this program and not the machine. It reads a
case a line, as JSON; it writes one a line: what the attack got, and whether all is well after it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import anyio
import coding_env
from coding_env.sandbox.launcher import Sandbox
from coding_env.sandbox.limits import Limits
from coding_env.sandbox.session import SandboxSession
from coding_env.server.grading import grade, solution_files
from coding_env.server.tasks import split_tests

sys.path.insert(0, str(Path(__file__).parent))

from traps import Traps, below, processes

LIMITS = Limits(
    run_timeout_s=1.0, cpu_s=6, memory_mb=192, workspace_mb=4, file_mb=2, processes=8, output_bytes=4096, discarded_mb=8
)
TESTS = [f"assert triple({n}) == {3 * n}" for n in (2, 7, 11, 40)]
CALM_S = 60.0  # for what must work after an attack, on a busy machine
TOOL_S = 10.0
HOME = str(Path(coding_env.__path__[0]))


class Arena:
    def __init__(self, disabled: list[str]) -> None:
        self.traps = Traps()
        self.sandbox = Sandbox(LIMITS, warm=1, disabled=disabled)
        self.alone = os.environ.get("OPENENV_ATTACK_LIMITS") == "namespaces"
        self.usual_processes = 0
        self.usual_folders = 0
        self.neighbour_place = ""

    async def attack(self, case: dict[str, Any]) -> dict[str, Any]:
        neighbour = self.sandbox.take()
        left = await self.calm(neighbour, "open('neighbour.txt', 'w').write('mine'); import os; os.getcwd()")
        self.neighbour_place = json.loads(left)
        self.traps.set()
        descriptors = len(os.listdir("/proc/self/fd"))
        if case["kind"] == "solution":
            result = await self._solution({"solution.py": self.aimed(case["code"])}, case)
        else:
            result = await self._run(case)
        result["descriptors_left"] = len(os.listdir("/proc/self/fd")) - descriptors
        result["connections"] = self.traps.connections
        result["secret_kept"] = self.traps.secret_kept
        result["neighbour"] = await self.calm(neighbour, "open('neighbour.txt').read()")
        neighbour.close()
        fresh = self.sandbox.take()
        result["fresh"] = await self.calm(fresh, "import os, math; print(sorted(os.listdir('.')), math.sqrt(4))")
        if case.get("next"):
            result["stdout"] += await self.calm(fresh, self.aimed(case["next"]))
        fresh.close()
        result["left"] = await self._left()
        return result

    def aimed(self, code: str) -> str:
        return self.traps.aimed(code, self.neighbour_place, HOME)

    async def _run(self, case: dict[str, Any]) -> dict[str, Any]:
        session = self.sandbox.take()
        code = self.aimed(case["code"])
        reply = await session.request({"op": "run", "code": code}, LIMITS.run_timeout_s)
        result: dict[str, Any] = {
            "stdout": reply.stdout, "stderr": reply.stderr, "failure": reply.failure, "timed_out": reply.timed_out,
            "exit_code": (reply.data or {}).get("exit_code"),
        }  # fmt: skip
        for operation in case.get("tools", ()):
            result["stdout"] += await self._tools(session, operation)
        if case["kind"] == "episode":
            exported = (await session.request({"op": "export"}, TOOL_S)).data or {}
            result |= await self._solution(solution_files(exported.get("files"), [], None), case)
        if case.get("after"):
            result["stdout"] += (await session.request({"op": "run", "code": self.aimed(case["after"])}, CALM_S)).stdout
        result["usable"] = session.usable
        result["afterwards"] = await self.calm(session, "print(40 + 2)") if session.usable else ""
        session.close()
        return result

    async def _tools(self, session: SandboxSession, operation: dict[str, Any]) -> str:
        """Use a file tool so often as the case says; returns all that it told."""
        told = ""
        for _ in range(operation.pop("times", 1)):
            asked = {key: self.aimed(value) if isinstance(value, str) else value for key, value in operation.items()}
            reply = await session.request({"limit": 4096, **asked}, TOOL_S)
            told += json.dumps(reply.data) if reply.data else reply.failure
        return "PWNED" if self.traps.aimed("@SECRET@", "", "") in told else ""

    async def _solution(self, files: dict[str, str], case: dict[str, Any]) -> dict[str, Any]:
        tests = case.get("tests", TESTS)
        split = split_tests(tests) if isinstance(tests, str) else tests
        verdict = await grade(self.sandbox, files, split, timeout_s=case.get("seconds", 8), test_timeout_s=1)
        return {"stdout": "", "stderr": "", "passed": verdict.passed, "outcomes": verdict.outcomes}

    async def calm(self, session: SandboxSession, code: str) -> str:
        reply = await session.request({"op": "run", "code": code}, CALM_S)
        return reply.stdout.strip() or f"{reply.failure} {reply.stderr}"

    async def _left(self) -> str:
        """What is left of the session once the killed are gone: processes or files; nothing, where all is well."""
        told = ""
        for _ in range(300):
            told = " ".join(filter(None, (self._processes_left(), self._files_left())))
            if not told:
                return ""
            await anyio.sleep(0.05)
        self.usual_processes, self.usual_folders = self._count(), self._count_folders()  # not the next one's fault
        return told

    def _processes_left(self) -> str:
        """Beside the sandbox's first process and the session that is kept ready: all, where it has a namespace."""
        count = self._count()
        return f"{count} processes, and {self.usual_processes} before" if count > self.usual_processes else ""

    def _count(self) -> int:
        process = self.sandbox._zygote  # pyright: ignore[reportPrivateUsage]
        return len(processes() if self.alone or process is None else below(process.pid))

    async def warm_up(self) -> None:
        """Use a session, and see how many processes there are when it is gone."""
        session = self.sandbox.take()
        await self.calm(session, "1")
        session.close()
        counts: list[int] = []
        while len(counts) < 10 or len(set(counts[-10:])) > 1:
            counts.append(self._count())
            await anyio.sleep(0.02)
        self.usual_processes = counts[-1]

    def _files_left(self) -> str:
        count = self._count_folders()
        return f"{count} workspaces with files, and {self.usual_folders} before" if count > self.usual_folders else ""

    def _count_folders(self) -> int:
        """Workspaces on the disk that hold anything, where they are no mounts."""
        folder = Path(self.sandbox._folder, "workspaces")  # pyright: ignore[reportPrivateUsage]
        if "files" in self.sandbox.report.layers or not folder.is_dir():
            return 0
        mode = folder.stat().st_mode & 0o777
        os.chmod(folder, mode | 0o700)
        count = sum(1 for each in folder.iterdir() if not _is_empty(each))
        os.chmod(folder, mode)
        return count


def _is_empty(folder: Path) -> bool:
    try:
        return not os.listdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False


async def main() -> None:
    arena = Arena(json.loads(sys.argv[1]))
    await arena.warm_up()
    report = arena.sandbox.report
    print(json.dumps({"layers": report.layers, "level": report.level.name.lower()}), flush=True)
    for line in sys.stdin:
        with anyio.fail_after(120):
            answer = await arena.attack(json.loads(line))
        print(json.dumps(answer), flush=True)
    arena.sandbox.close()
    shutil.rmtree(arena.traps.folder)


if __name__ == "__main__":
    anyio.run(main)
