"""What is left of environment servers when the process that started them is killed with -9, and for how long.

In each round a process starts two servers with ``ProcessProvider`` and is killed in one phase of its life:

- ``starting``: at a moment spread evenly over the servers' start,
- ``ready``: as soon as both answer,
- ``serving``: while it plays in eight sessions,
- ``stubborn``: both answer, ignore SIGTERM, and have a child and a daemon of their own.

Every process of a round carries a mark in its environment, so whatever is left is found, whoever started it.
Linux only. The phases take turns.

    python benchmarks/orphans.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import anyio
import anyio.abc
from _record import Target, record, spread

from openenv_trl.client import GenericEnvClient
from openenv_trl.providers import ProcessProvider

ROOT = Path(__file__).parent.parent
ENVIRONMENT = ROOT / "environments" / "blackjack_env"
PLAIN_SERVER = ROOT / "tests" / "providers" / "plain_server.py"
STUBBORN = [sys.executable, str(PLAIN_SERVER), "--port", "{port}", "--ignore-term", "--grandchild", "--daemon"]
PHASES = ("starting", "ready", "serving", "stubborn")
MARK = "ORPHANS_MARK"
REPLICAS = 2
SESSIONS = 8
# How long leftovers are waited for, and how long after the last is gone it is looked whether one came up late.
GIVE_UP_S = 30.0
LOOK_AGAIN_S = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--own", choices=PHASES, help=argparse.SUPPRESS)
    parser.add_argument("--mark", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.own:
        anyio.run(own, options.own, options.mark)
        return
    start_s = measure_start()
    gone: dict[str, list[float]] = {phase: [] for phase in PHASES}
    killed = {phase: [] for phase in PHASES}
    leftovers = dict.fromkeys(PHASES, 0)
    for number in range(options.rounds):
        for phase in PHASES:
            delay_s = start_s * (number + 0.5) / options.rounds if phase == "starting" else 0.0
            processes, seconds, left = one_round(phase, delay_s)
            killed[phase].append(processes)
            gone[phase].append(seconds)
            leftovers[phase] += left
            print(f"{number} {phase}: {processes} processes, gone after {seconds:.3f} s, left {left}", file=sys.stderr)
    results = {
        phase: {
            "seconds_to_gone": spread(gone[phase]),
            "processes_at_the_kill": spread(killed[phase], 1),
            "leftovers": leftovers[phase],
        }
        for phase in PHASES
    }
    usual = [seconds for phase in PHASES if phase != "stubborn" for seconds in gone[phase]]
    targets = [
        Target(f"processes left over, {options.rounds * len(PHASES)} kills", sum(leftovers.values()), "<= 0"),
        Target("longest s until all were gone, servers that heed SIGTERM", round(max(usual), 3), "<= 5"),
        Target("longest s until all were gone, servers that ignore it", round(max(gone["stubborn"]), 3), "<= 8"),
    ]
    settings = {"rounds": options.rounds, "replicas": REPLICAS, "sessions": SESSIONS, "stop_grace_s": 5.0}
    packages = ["openenv-trl", "anyio", "uvicorn", "websockets"]
    record("orphans", {**settings, "seconds_to_start": round(start_s, 3), **results}, targets, packages)


async def own(phase: str, mark: str) -> None:
    """The process that is killed: says "starting" and, in the phase where it is to be killed, "now"."""
    os.write(1, b"starting\n")
    command = STUBBORN if phase == "stubborn" else ENVIRONMENT
    provider = ProcessProvider(command, replicas=REPLICAS, env_vars={MARK: mark})
    await provider.start()
    if phase == "serving":
        async with anyio.create_task_group() as tasks:
            for number in range(SESSIONS):
                url = provider.base_urls[number % REPLICAS]
                await tasks.start(play, url)
            os.write(1, b"now\n")
    else:
        os.write(1, b"now\n")
    await anyio.sleep_forever()


async def play(url: str, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Plays for ever; has started once a step was answered."""
    started = False
    async with GenericEnvClient(url) as client:
        while True:
            await client.reset()
            await client.step({"move": "stand"})
            if not started:
                started = True
                task_status.started()


def measure_start() -> float:
    """Seconds from the owner's first word until both servers answer; the median of three."""
    times: list[float] = []
    for _ in range(3):
        owner = start_owner("ready", "none")
        read_word(owner, b"starting")
        begin = time.perf_counter()
        read_word(owner, b"now")
        times.append(time.perf_counter() - begin)
        owner.terminate()
        owner.wait()
    return sorted(times)[1]


def one_round(phase: str, delay_s: float) -> tuple[int, float, int]:
    """Starts an owner and kills it: processes at the kill, seconds until all were gone, how many never were."""
    mark = uuid.uuid4().hex
    owner = start_owner(phase, mark)
    read_word(owner, b"starting" if phase == "starting" else b"now")
    time.sleep(delay_s)
    processes = len(marked(mark))
    owner.send_signal(signal.SIGKILL)
    begin = time.perf_counter()
    owner.wait()
    while marked(mark) and time.perf_counter() - begin < GIVE_UP_S:
        time.sleep(0.005)
    seconds = time.perf_counter() - begin
    time.sleep(LOOK_AGAIN_S)
    left = marked(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return processes, seconds, len(left)


def start_owner(phase: str, mark: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--own", phase, "--mark", mark]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)


def read_word(owner: subprocess.Popen[bytes], word: bytes) -> None:
    assert owner.stdout is not None
    while (line := owner.stdout.readline()).strip() != word:
        if not line:
            raise SystemExit(f"the owner ended before it said {word.decode()}")


def marked(mark: str) -> list[int]:
    """The living processes that carry the mark."""
    found: list[int] = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            # Empty for a process that has ended and is not collected yet.
            environment = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environment.split(b"\0"):
            found.append(int(entry))
    return found


if __name__ == "__main__":
    main()
