"""The coding environment's sandbox: what a run and a session cost, and which layer stops which attack.

Latencies are of ``print(1)`` in a warm session, in process and over a server's native wire; of a new session; and of a
hundred sessions at once. In the same run, for comparison: the limit (a byte to a forked process and back, by pipes;
and `exec` of the same cell, which is the tool's own time), and smolagents' `LocalPythonExecutor`, which runs in the
server's own process. Rounds alternate, so that a busy moment of the machine hits all of them.

    python benchmarks/sandbox.py [--rounds 5] [--quick] [--without-attacks] [--again CASE ...] [--page]

The attacks are those of ``tests/coding/attacks``, made on each kind of sandbox that this machine can have, in
containers too where an engine answers, and again with each layer alone. ``docs/sandbox-attacks.md`` is written from
the results; ``--page`` writes it from those that are stored, and measures nothing. ``--again`` makes some attacks
again, such as new ones, and keeps all else that is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from _attack_table import attack_table, markdown
from _record import RESULTS, Target, record, spread
from coding_env.models import CodeAction
from coding_env.server.coding_environment import CodingEnvironment

from openenv_trl.client import GenericEnvClient
from openenv_trl.providers import ProcessProvider

ROOT = Path(__file__).parent.parent
PARTS = ROOT / "outputs" / "benchmarks"
PAGE = ROOT / "docs" / "sandbox-attacks.md"
CELL = "print(1)"
MANY = 100
PACKAGES = ["openenv-trl", "openenv-coding_env", "smolagents", "pydantic"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few calls, few attacks; results/ stays as it is")
    parser.add_argument("--without-attacks", action="store_true", help="keep the attack table that is stored")
    parser.add_argument("--page", action="store_true", help="only write the page from what is stored")
    parser.add_argument("--again", nargs="+", metavar="CASE", help="only make these attacks again")
    given = parser.parse_args()
    stored = RESULTS / "sandbox.json"
    if given.page:
        write_page(json.loads(stored.read_text()))
        return
    if given.again:
        results = json.loads(stored.read_text())["results"]
        attacks = results["attacks"]
        attacks["cases"] = dict(sorted({**attacks["cases"], **attack_table(given.again)["cases"]}.items()))
        attacks["made_again"] = sorted({*attacks.get("made_again", []), *given.again})
        write_page(json.loads(record("sandbox", results, targets(results), PACKAGES, RESULTS).read_text()))
        return
    figures = asyncio.run(measure(1 if given.quick else given.rounds, 50 if given.quick else 300))
    if given.without_attacks:
        attacks = json.loads(stored.read_text())["results"]["attacks"]
    else:
        attacks = attack_table(["endless_loop", "fork_bomb", "mount", "tests_always_equal"] if given.quick else None)
    results = {"rounds": given.rounds, **figures, "attacks": attacks}
    path = record("sandbox", results, targets(results), PACKAGES, PARTS / "sandbox-quick" if given.quick else RESULTS)
    if not given.quick:
        write_page(json.loads(path.read_text()))


def write_page(stored: dict[str, Any]) -> None:
    """Write the attack table's page."""
    PAGE.write_text(markdown(stored["results"]["attacks"]))


async def measure(rounds: int, calls: int) -> dict[str, Any]:
    """All latencies, in milliseconds."""
    environment = CodingEnvironment()
    taken: dict[str, list[dict[str, float]]] = {}
    hundred: list[dict[str, float]] = []
    with ProcessProvider(str(ROOT / "environments" / "coding_env")) as servers:
        async with GenericEnvClient(servers.base_urls[0]) as client:
            await client.reset(seed=1)
            await environment.reset_async(seed=1)
            what: dict[str, Callable[[], Awaitable[object]]] = {
                "run_in_process": lambda: environment.step_async(CodeAction(code=CELL)),
                "run_over_the_native_wire": lambda: client.step({"code": CELL}),
                "new_session_in_process": lambda: environment.reset_async(seed=1),
                "new_session_over_the_native_wire": lambda: client.reset(seed=1),
                "limit_exec_of_the_cell": _exec,
                "limit_pipe_to_a_forked_process": _echo(),
                "smolagents_in_process": _smolagents(),
            }
            for number in range(rounds):
                for name, call in what.items():
                    new = name.startswith("new")
                    taken.setdefault(name, []).append(
                        await timed(call, calls // 5 if new else calls, 0.05 if new else 0.0)
                    )
                    print(number, name, taken[name][-1], file=sys.stderr, flush=True)
                hundred.append(await many())
    environment.close()
    return {
        "milliseconds": {name: _spreads(each) for name, each in taken.items()},
        "sessions_at_once": {"sessions": MANY, **_spreads(hundred)},
        "sandbox": environment.state.sandbox,
    }


async def timed(call: Callable[[], Awaitable[object]], count: int, pause_s: float) -> dict[str, float]:
    """The median of one call after another, and what 95 of 100 stay below."""
    took: list[float] = []
    for _ in range(count):
        await asyncio.sleep(pause_s)
        started = time.perf_counter()
        await call()
        took.append(1000 * (time.perf_counter() - started))
    took.sort()
    return {"p50": statistics.median(took), "p95": took[int(count * 0.95)]}


async def many() -> dict[str, float]:
    """A hundred sessions at once, and a run in each."""
    sessions = [CodingEnvironment() for _ in range(MANY)]
    started = time.perf_counter()
    await asyncio.gather(*[each.reset_async() for each in sessions])
    ready = time.perf_counter()
    await asyncio.gather(*[each.step_async(CodeAction(code=CELL)) for each in sessions])
    ran = time.perf_counter()
    for each in sessions:
        each.close()
    return {"reset_s": ready - started, "run_each_s": ran - ready}


async def _exec() -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(CELL, "<cell>", "exec"), {})


def _echo() -> Callable[[], Awaitable[None]]:
    there, back = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(there[1])
        while data := os.read(there[0], 1):
            os.write(back[1], data)
        os._exit(0)
    os.close(there[0])

    async def call() -> None:
        os.write(there[1], b"x")
        os.read(back[0], 1)

    return call


def _smolagents() -> Callable[[], Awaitable[None]]:
    from smolagents.local_python_executor import LocalPythonExecutor

    executor = LocalPythonExecutor(additional_authorized_imports=[])
    executor.send_tools({})

    async def call() -> None:
        executor(CELL)

    return call


def _spreads(taken: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    return {name: spread([each[name] for each in taken]) for name in taken[0]}


def targets(results: dict[str, Any]) -> list[Target]:
    """What was aimed at."""
    took = results["milliseconds"]
    over = took["run_over_the_native_wire"]["p50"]["median"] - took["limit_exec_of_the_cell"]["p50"]["median"]
    cases = results["attacks"]["cases"].values()
    breached = [each for case in cases for each in case["places"].values() if each["result"] == "breached"]
    load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    wanted = [
        ("print(1) in a warm session over the native wire, ms over the tool's own time, p50", over, "<= 5"),
        ("a new session in process, ms, p95", took["new_session_in_process"]["p95"]["median"], "<= 60"),
        (
            "a new session over the native wire, ms, p95",
            took["new_session_over_the_native_wire"]["p95"]["median"],
            "<= 60",
        ),
        ("100 sessions at once, seconds to be there", results["sessions_at_once"]["reset_s"]["median"], "<= 5"),
        ("attacks that a sandbox claims to stop and does not", float(len(breached)), "<= 0"),
    ]
    aimed = [Target(what, round(value, 3), target) for what, value, target in wanted]
    return [each if each.ok else Target(each.what, each.value, each.target, load) for each in aimed]


if __name__ == "__main__":
    main()
