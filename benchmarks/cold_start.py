"""From a provider's start to the first reset, on an image that is there: ours, and the public package's.

Ours is the echo environment's image with `LocalDockerProvider`; theirs is what ``openenv init`` writes (an echo too),
built by its own Dockerfile, with their `LocalDockerProvider` and client, in a process of ``.venv-openenv``. Both
processes have imported their packages before. Rounds alternate, so that a busy moment of the machine hits both.

    python benchmarks/cold_start.py [--rounds 5] [--rounds-of-eight 2] [--quick]

It needs a Docker engine, and builds both images (two minutes the first time).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from _cold_images import OURS, PUBLIC, built, megabytes
from _record import RESULTS, Target, record, spread
from _servers import public_versions, python_of

PARTS = Path(__file__).parent.parent / "outputs" / "benchmarks"
EIGHT = 8

Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rounds-of-eight", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one round of each; results/ stays as it is")
    given = parser.parse_args()
    rounds = (1, 1) if given.quick else (given.rounds, given.rounds_of_eight)
    with built(), ExitStack() as stack:
        processes = {
            "ours": stack.enter_context(starting("ours", OURS)),
            "public": stack.enter_context(starting("public", PUBLIC)),
        }
        for process in processes.values():
            measure(process, 1)  # the images' files are read for the first time
        one = alternate(processes, 1, rounds[0])
        eight = alternate(processes, EIGHT, rounds[1])
        sizes = {"ours": megabytes(OURS), "public": megabytes(PUBLIC)}
    results = {
        "rounds": {"one": rounds[0], "eight": rounds[1]},
        "one_replica": {package: summary(figures) for package, figures in one.items()},
        "eight_replicas": {package: summary(figures) for package, figures in eight.items()},
        "image_mb": sizes,
        "public_versions": public_versions(),
    }
    targets = [
        target("start to first reset, one replica, ratio to the public package", one, "<= 0.25"),
        target("start to first reset, 8 replicas at once, ratio to its 8 one after another", eight, "<= 0.1"),
    ]
    packages = ["openenv-trl", "aiodocker", "fastapi", "pydantic", "uvicorn"]
    record("cold_start", results, targets, packages, PARTS / "cold_start-quick" if given.quick else RESULTS)


@contextmanager
def starting(package: str, image: str) -> Iterator[subprocess.Popen[str]]:
    """A process that starts containers of the image with the package's provider, until the end of the block."""
    python = python_of("public" if package == "public" else "ours")
    command = [python, str(Path(__file__).parent / "_starting.py"), package, image]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        answer(process)
        yield process
    finally:
        process.communicate()  # the end of its input ends it


def alternate(processes: dict[str, subprocess.Popen[str]], replicas: int, rounds: int) -> dict[str, list[Figures]]:
    taken: dict[str, list[Figures]] = {package: [] for package in processes}
    for number in range(rounds):
        for package, process in processes.items():
            figures = {**measure(process, replicas), "load_average_1min": os.getloadavg()[0]}
            taken[package].append(figures)
            shown = {name: round(value, 3) for name, value in figures.items()}
            print(f"{replicas} {package} {number}: {shown}", file=sys.stderr, flush=True)
    return taken


def measure(process: subprocess.Popen[str], replicas: int) -> Figures:
    assert process.stdin is not None
    process.stdin.write(f"{replicas}\n")
    process.stdin.flush()
    return answer(process)


def answer(process: subprocess.Popen[str]) -> Figures:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("the process that starts containers has ended: its error is above")
    return json.loads(line)


def summary(figures: Sequence[Figures]) -> dict[str, dict[str, float]]:
    return {name: spread([each[name] for each in figures], 3) for name in figures[0]}


def target(what: str, taken: dict[str, list[Figures]], bound: str) -> Target:
    """The ratio of the medians."""
    ours, public = (spread([each["seconds"] for each in taken[package]])["median"] for package in ("ours", "public"))
    aimed = Target(what, round(ours / public, 3), bound)
    why = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; see where our seconds went"
    return aimed if aimed.ok else Target(what, aimed.value, bound, why)


if __name__ == "__main__":
    main()
