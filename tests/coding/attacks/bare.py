"""An attack on a server that confines nothing: what it gets where no sandbox is, so that it is known to be an attack.

The "server" is a process that runs the code itself, as the simplest of servers would, tests and all. It is started
inside of `outer_limits`, one attack each. It reads a case as JSON, and writes what came of it in the arena's words.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from traps import SECRET, Traps, processes

TESTS = [f"assert triple({n}) == {3 * n}" for n in (2, 7, 11, 40)]
HOME = str(Path(__file__).resolve().parents[3] / "environments" / "coding_env")
DEADLINE_S = 1.5
OUTPUT = 1 << 22


def main() -> None:
    case: dict[str, Any] = json.loads(sys.stdin.read())
    traps = Traps()
    neighbour = traps.folder / "neighbour"
    neighbour.mkdir()
    (neighbour / "neighbour.txt").write_text("mine")
    workspace = traps.folder / "workspace"
    workspace.mkdir()
    before = len(processes())
    read, write = os.pipe()
    server = os.fork()
    if server == 0:
        os.close(read)
        os.chdir(workspace)
        for number in (1, 2):
            os.dup2(write, number)
        _serve(case, lambda code: traps.aimed(code, str(neighbour), HOME))
    os.close(write)
    told, timed_out = _read(read, time.monotonic() + DEADLINE_S)
    ended = _ends(server, 0.0 if timed_out else 1.0)
    if not ended:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
    last = told.rsplit("\n", 2)[-2] if told.endswith("\n") else ""
    answer: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        answer = json.loads(last)
    left = max(0, len(processes()) - before)
    result = {
        "stdout": told if len(told) < OUTPUT else "x" * OUTPUT,
        "stderr": "",
        # A server that does not answer any more is what most attacks want.
        "neighbour": '"mine"' if answer and _holds(neighbour / "neighbour.txt", "mine") else "spoilt",
        "fresh": "[] 2.0" if answer.get("well") == "42" else "no answer",
        "connections": traps.connections,
        "secret_kept": traps.secret_kept and SECRET == "the-secret-of-the-server",
        "left": f"{left} processes" if left else "",
        "descriptors_left": answer.get("descriptors", 0),
    }
    if case["kind"] != "run":
        result["passed"] = answer.get("passed", 0)
    print(json.dumps(result), flush=True)


def _ends(process: int, seconds: float) -> bool:
    """Whether it ends in that time."""
    deadline = time.monotonic() + seconds
    while os.waitpid(process, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _holds(file: Path, text: str) -> bool:
    with contextlib.suppress(OSError):
        return file.read_text() == text
    return False


def _read(descriptor: int, deadline: float) -> tuple[str, bool]:
    data = bytearray()
    while len(data) < 2 * OUTPUT:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return data.decode("utf-8", "replace"), True
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return data.decode("utf-8", "replace"), False
        data += piece
    return data.decode("utf-8", "replace"), True


def _serve(case: dict[str, Any], aimed: Any) -> None:
    """Run the code as a server does that trusts it, and then answer the next one."""
    descriptors = len(os.listdir("/proc/self/fd"))
    names: dict[str, Any] = {"__name__": "__main__"}
    passed = 0
    with contextlib.suppress(Exception):
        exec(compile(aimed(case["code"]), "solution.py", "exec"), names)
    if case["kind"] != "run":
        with contextlib.suppress(OSError):
            Path("solution.py").exists() and exec(Path("solution.py").read_text(), names)
        passed = _passed(case, names)
    for operation in case.get("tools", ()):
        for _ in range(operation.pop("times", 1)):
            with contextlib.suppress(OSError, ValueError):
                _use(operation["op"], aimed(operation.get("path", ".")), operation.get("text", ""))
    for code in (case.get("after"), case.get("next")):
        if code:
            with contextlib.suppress(Exception):
                exec(compile(aimed(code), "next", "exec"), {})
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec("import os, math, sched; import json; json.loads('1'); print(40 + 2)", {})
    left = len(os.listdir("/proc/self/fd")) - descriptors
    print("\n" + json.dumps({"well": out.getvalue().strip(), "passed": passed, "descriptors": left}), flush=True)
    os._exit(0)


def _passed(case: dict[str, Any], names: dict[str, Any]) -> int:
    tests = case.get("tests", TESTS)
    passed = 0
    sys.modules["solution"] = type(sys)("solution")
    vars(sys.modules["solution"]).update(names)
    for test in [tests] if isinstance(tests, str) else tests:
        known = set(names)
        try:
            exec(test, names)
            # Found by names that were not there before, as a simple runner finds them.
            for name in [name for name in names if name.startswith("test_") and name not in known]:
                names[name]()
            passed += 1
        except Exception:
            continue
    return passed


def _use(operation: str, path: str, text: str) -> None:
    if operation == "write":
        Path(path).write_text(text)
    elif operation == "read":
        if SECRET in Path(path).read_text():
            print("PWNED", path)
    else:
        for folder, _, files in os.walk("."):
            for name in files:
                (Path(folder) / name).read_bytes()


if __name__ == "__main__":
    main()
