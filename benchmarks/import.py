"""How long it takes to import the package, its client, and a served environment's process.

Each round starts one fresh interpreter for each case, in turn, so that a busy moment of the machine hits all of them
alike. The wall seconds are those of the whole process, the interpreter's own start included; ``python`` alone is
the base line.

    python benchmarks/import.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from _record import Target, record, spread

ROOT = Path(__file__).parent.parent
ENVIRONMENT = ROOT / "environments" / "blackjack_env"

CASES = {
    "python": "pass",
    "package": "import openenv_trl",
    "client": "from openenv_trl import EnvClient",
    "served_environment": (
        "import openenv_trl.server.serving\n"
        "from openenv_trl.server.loading import load_app\n"
        f"load_app({str(ENVIRONMENT)!r})"
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    for code in CASES.values():
        run(code)  # compiles what is not compiled yet
    wall: dict[str, list[float]] = {case: [] for case in CASES}
    cpu: dict[str, list[float]] = {case: [] for case in CASES}
    memory: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(rounds):
        for case, code in CASES.items():
            seconds, cpu_seconds, megabytes = run(code)
            wall[case].append(seconds)
            cpu[case].append(cpu_seconds)
            memory[case].append(megabytes)
    results = {
        case: {"wall_s": spread(wall[case]), "cpu_s": spread(cpu[case]), "peak_memory_mb": spread(memory[case], 1)}
        for case in CASES
    }
    targets = [
        target("wall s, import openenv_trl", results["package"], "wall_s", "< 0.15"),
        target("wall s, import of a served environment", results["served_environment"], "wall_s", "< 0.6"),
        target("CPU s, import of the client", results["client"], "cpu_s", "<= 0.5"),
    ]
    packages = ["openenv-trl", "pydantic", "fastapi", "starlette", "uvicorn", "websockets", "anyio", "orjson"]
    record("import", {"rounds": rounds, **results}, targets, packages)


def target(what: str, figures: dict[str, dict[str, float]], figure: str, bound: str) -> Target:
    """A target that, where it was missed, says how much of the time the process was at work."""
    value = figures[figure]["median"]
    aimed = Target(what, value, bound)
    if aimed.ok:
        return aimed
    why = (
        f"{figures['cpu_s']['median']} s of it were CPU time; the rest was waiting, at a load average of "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    return Target(what, value, bound, why)


def run(code: str) -> tuple[float, float, float]:
    """Run the code in a fresh interpreter: wall seconds, CPU seconds, peak memory in MB."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"failed: {code}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
