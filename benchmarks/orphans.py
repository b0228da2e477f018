"""What is left of environment servers when the process that started them is killed with -9, and for how long.

Each round starts an owner of one or two servers: processes, Docker containers, or services of a Swarm. It is killed at
a moment of its life that is drawn by chance: before it starts anything, while it starts, when it is ready, while it
plays, while it stops. Half of the servers are this package's; the others know of no lease, and as processes they ignore
SIGTERM and have a child and a daemon of their own; their image has an anonymous volume. Thirty seconds after each kill
all that is left of the owner is counted: containers (in any state), services, networks, volumes, processes.

Then a second set, in which the owner's reaper is killed in the same moment, so that only the servers' leases (5 s) are
left: they end the servers, and an engine removes a container that has ended, but no service. After that one more owner
starts on each engine, which removes what dead ones have left.

The engine is one of the benchmark's own (root is needed, and dockerd), a Swarm of one node. Many rounds run side by
side. Linux only.

    python benchmarks/orphans.py [--kills 100] [--lease-kills 20] [--seed 0] [--at-once 5]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _orphan_traces import MARK, Traces
from _record import Target, record, spread

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the tests' private engine

ENVIRONMENT = ROOT / "environments" / "blackjack_env"
PLAIN_SERVER = ROOT / "tests" / "providers" / "plain_server.py"
STUBBORN = [sys.executable, str(PLAIN_SERVER), "--port", "{port}", "--ignore-term", "--grandchild", "--daemon"]
FOREIGN_SERVER = ["python", "-m", "http.server", "8000"]
FOREIGN_DOCKERFILE = "FROM python:3.11-slim\nVOLUME /data\n"
KINDS = ("process", "docker", "swarm")
PHASES = ("before", "starting", "ready", "serving", "stopping")
WORDS = {"before": "", "starting": "starting", "ready": "ready", "serving": "serving", "stopping": "stopping"}
COUNTED_AFTER_S = 30.0
LEASE_S = 5.0
# How long a phase of chance lasts, where the phase has no end of its own: the kill is drawn from it.
SPAN_S = {"before": 1.5, "ready": 0.5, "serving": 0.5}


@dataclass
class Round:
    """One owner's life and death."""

    kind: str
    phase: str
    ours: bool
    replicas: int
    internal: bool
    fraction: float
    reaper_too: bool = False
    cleans_up: bool = False
    """Whether the owner removes what dead ones have left. Not in the rounds, which are to leave nothing themselves."""
    said: str = ""
    """The last word of the owner before it was killed."""
    ended_by_itself: bool = False
    had: int = 0
    """Things and processes at the kill."""
    gone_s: float | None = None
    left: list[str] = field(default_factory=list[str])


@dataclass
class Place:
    """Where the rounds are played."""

    docker_host: str | None
    our_image: str
    foreign_image: str
    traces: Traces
    spans_s: dict[str, dict[str, float]]
    """How long starting and stopping take, by kind."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--lease-kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=5, help="owners that live at the same time")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    began = time.monotonic()
    with place_of(options.kinds) as place, place.traces.watching():
        for kind in options.kinds:
            place.spans_s[kind] = measure(kind, place)
        rounds = play(draw(chance, options.kinds, options.kills), place, options.at_once)
        engines = [kind for kind in options.kinds if kind != "process"]
        lease_kills = options.lease_kills if engines else 0
        alone = play(draw_without_reaper(chance, engines, lease_kills), place, options.at_once)
        before = len(place.traces.everything())
        after = [thing for kind in engines for thing in left_after_another_owner(kind, place)]
        volumes = list(place.traces.volumes)
    results: dict[str, Any] = {
        "kills": options.kills,
        "seed": options.seed,
        "owners_at_once": options.at_once,
        "counted_after_s": COUNTED_AFTER_S,
        "seconds_in_all": round(time.monotonic() - began),
        "seconds_of_phases": place.spans_s,
        **{kind: summary([each for each in rounds if each.kind == kind]) for kind in options.kinds},
    }
    targets = [
        Target(f"left over {COUNTED_AFTER_S:g} s after {len(rounds)} kills", count(rounds), "<= 0"),
        Target(
            "owners that ended before they were killed", sum(each.ended_by_itself for each in rounds + alone), "<= 0"
        ),
    ]
    if alone:
        results["reaper_killed_too"] = {
            "lease_s": LEASE_S,
            **{kind: summary([each for each in alone if each.kind == kind]) for kind in engines},
            "left_on_the_engine": before,
            "left_when_another_owner_has_started": after,
        }
        targets += [
            Target(
                f"servers that run {COUNTED_AFTER_S:g} s after the lease of {len(alone)} owners killed with reaper",
                sum(thing.endswith(" running") for each in alone for thing in each.left),
                "<= 0",
            ),
            Target("left of them when another owner has started", len(after), "<= 0"),
            Target("volumes on the engine at the end", len(volumes), "<= 0"),
        ]
    record("orphans", results, targets, ["openenv-trl", "anyio", "uvicorn", "aiodocker", "psutil"])


def draw(chance: random.Random, kinds: Sequence[str], kills: int) -> list[Round]:
    """The rounds: kinds and phases take turns, all else is chance."""
    rounds = [
        Round(
            kind=kinds[number % len(kinds)],
            phase=PHASES[number // len(kinds) % len(PHASES)],
            ours=chance.random() < 0.5,
            replicas=chance.choice((1, 2)),
            internal=chance.random() < 0.3,
            fraction=chance.random(),
        )
        for number in range(kills)
    ]
    chance.shuffle(rounds)
    return rounds


def draw_without_reaper(chance: random.Random, kinds: Sequence[str], kills: int) -> list[Round]:
    """Rounds in which a server runs and only its own lease can end it."""
    return [
        Round(kinds[number % len(kinds)], chance.choice(("ready", "serving")), True, 1, False, chance.random(), True)
        for number in range(kills)
    ]


@contextlib.contextmanager
def place_of(kinds: Sequence[str]) -> Iterator[Place]:
    """The engine with both images, where one is needed."""
    if kinds == ["process"]:
        yield Place(None, "", "", Traces(None), {})
        return
    from tests.providers.engines import private_engine

    tag = uuid.uuid4().hex[:8]
    ours, foreign = f"orphans-ours:{tag}", f"orphans-foreign:{tag}"
    dockerfile = "environments/blackjack_env/server/Dockerfile"
    try:
        build = ["docker", "build", "--quiet", "--network", "host"]
        subprocess.run([*build, "--file", dockerfile, "--tag", ours, "."], cwd=ROOT, check=True, stdout=2)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "Dockerfile").write_text(FOREIGN_DOCKERFILE)
            subprocess.run([*build, "--tag", foreign, folder], check=True, stdout=2)
        with private_engine([ours, foreign]) as engine:
            engine.docker("swarm", "init", "--advertise-addr", "127.0.0.1", "--listen-addr", "127.0.0.1:0")
            yield Place(engine.host, ours, foreign, Traces(engine.socket), {})
    finally:
        subprocess.run(["docker", "rmi", "--force", ours, foreign], stdout=2, check=False)


def spec_of(each: Round, place: Place, mark: str) -> dict[str, Any]:
    """The provider's settings for a round."""
    common = {"type": each.kind, "replicas": each.replicas, "ready_timeout_s": 120, "env_vars": {MARK: mark}}
    if each.kind == "process":
        return {**common, "environment": str(ENVIRONMENT) if each.ours else STUBBORN}
    lease = {"lease_s": LEASE_S} if each.reaper_too else {}
    network = {"network": "internal"} if each.internal and each.kind == "docker" else {}
    if each.ours:
        return {**common, **lease, **network, "image": place.our_image}
    foreign = {"image": place.foreign_image, "command": FOREIGN_SERVER, "health_path": "/"}
    return {**common, **lease, **network, **foreign}


class OwnerProcess:
    """The owner of one round; a thread reads what it says."""

    def __init__(self, each: Round, place: Place) -> None:
        self.mark = uuid.uuid4().hex
        self.id = "not said"
        self.words: dict[str, float] = {}
        self.said = ""
        self._changed = threading.Condition()
        docker_host = None if each.kind == "process" else place.docker_host
        spec = spec_of(each, place, self.mark)
        plan = {
            "spec": spec,
            "docker_host": docker_host,
            "phase": each.phase,
            "plays": each.ours,
            "cleans_up": each.cleans_up,
        }
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("_orphan_owner.py")), json.dumps(plan)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, MARK: self.mark},
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, *rest = line.split()
            with self._changed:
                if word == "alive":
                    self.id = rest[0]
                self.said = word
                self.words[word] = time.monotonic()
                self._changed.notify_all()
        with self._changed:
            self.words["ended"] = time.monotonic()
            self._changed.notify_all()

    def wait_for(self, word: str) -> float:
        """Wait until it has said a word, or has ended by itself, as when an engine refuses; returns when that was."""
        with self._changed:
            self._changed.wait_for(lambda: word in self.words or "ended" in self.words)
            return self.words[word] if word in self.words else self.words["ended"]

    @property
    def ended_by_itself(self) -> bool:
        """Whether it was dead before it was killed."""
        return "ended" in self.words

    def kill(self, and_these: Sequence[int]) -> None:
        """Kill it, and others just before: its reaper must not see its death."""
        if and_these:
            self.process.send_signal(signal.SIGSTOP)  # else it would start another reaper
        for pid in and_these:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self._reader.join()


def measure(kind: str, place: Place) -> dict[str, float]:
    """How long an owner of that kind takes to start and to stop."""
    owner = OwnerProcess(Round(kind, "stopping", True, 2, False, 0.0), place)
    stopping = owner.wait_for("stopping")
    spans = {"starting": owner.wait_for("ready") - owner.wait_for("starting")}
    spans["stopping"] = owner.wait_for("stopped") - stopping
    if owner.ended_by_itself:
        raise SystemExit(f"an owner of the kind {kind} cannot start its servers")
    owner.kill(())
    print(f"{kind}: {spans}", file=sys.stderr)
    return {phase: round(seconds, 2) for phase, seconds in spans.items()}


def left_after_another_owner(kind: str, place: Place) -> list[str]:
    """What dead owners have on the engine when a later owner has been there for a while."""
    owner = OwnerProcess(Round(kind, "ready", False, 1, False, 0.0, cleans_up=True), place)
    owner.wait_for("ready")
    ends = time.monotonic() + COUNTED_AFTER_S
    while True:
        own, _ = place.traces.of(owner.id, owner.mark)
        left = [thing for thing in place.traces.everything() if thing not in own]
        if not left or time.monotonic() > ends:
            break
    owner.kill(())
    while place.traces.of(owner.id, owner.mark)[0] and time.monotonic() < ends + COUNTED_AFTER_S:
        time.sleep(0.1)
    return left


def play(rounds: list[Round], place: Place, at_once: int) -> list[Round]:
    """Play all rounds; a few owners live at a time, and many have died and are waited for."""
    living = threading.Semaphore(at_once)
    with ThreadPoolExecutor(max(1, len(rounds))) as pool:
        for each in pool.map(lambda each: one_round(each, place, living), rounds):
            what = f"{each.kind} {'ours' if each.ours else 'foreign'} killed {each.phase} (said '{each.said}')"
            gone = "never" if each.gone_s is None else f"after {each.gone_s:.1f} s"
            print(f"{what}: had {each.had}, gone {gone}, left {each.left}", file=sys.stderr)
    return rounds


def one_round(each: Round, place: Place, living: threading.Semaphore) -> Round:
    """Start an owner, kill it, and see what is left."""
    with living:
        began = time.monotonic()
        owner = OwnerProcess(each, place)
        word = WORDS[each.phase]
        since = owner.wait_for(word) if word else began
        span_s = SPAN_S.get(each.phase) or place.spans_s[each.kind][each.phase]
        time.sleep(max(0.0, since + each.fraction * span_s - time.monotonic()))
        things, processes = place.traces.of(owner.id, owner.mark) if each.reaper_too else ([], [])
        each.ended_by_itself = owner.ended_by_itself
        owner.kill([process.pid for process in processes if process.is_reaper])
        killed = time.monotonic()
        each.said = owner.said
    waited_s = COUNTED_AFTER_S + (LEASE_S if each.reaper_too else 0.0)
    first = True
    while True:
        things, processes = place.traces.of(owner.id, owner.mark)
        servers = [process.pid for process in processes if not process.is_reaper]
        passed = time.monotonic() - killed
        if first:
            each.had, first = len(things) + len(servers), False
        # What an engine was still making appears after a first look that found nothing.
        each.gone_s = None if things or servers else each.gone_s or passed
        if passed >= waited_s:
            break
        time.sleep(0.1)
    each.left = things + [f"process {pid}" for pid in servers]
    return each


def count(rounds: Sequence[Round]) -> int:
    return sum(len(each.left) for each in rounds)


def summary(rounds: Sequence[Round]) -> dict[str, Any]:
    """The figures of one kind."""
    gone = [each.gone_s for each in rounds if each.gone_s is not None]
    return {
        "kills": len(rounds),
        "ended_before_the_kill": sum(each.ended_by_itself for each in rounds),
        "last_words": dict(Counter(each.said or "nothing" for each in rounds)),
        "things_just_after_the_kill": spread([each.had for each in rounds], 1) if rounds else {},
        "seconds_to_gone": spread(gone, 1) if gone else {},
        "left": [thing for each in rounds for thing in each.left],
    }


if __name__ == "__main__":
    main()
