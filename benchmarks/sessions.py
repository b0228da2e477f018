"""What sessions cost: to open, to hold, to play whole episodes in; and what a large observation costs.

Parts, each with the public package in the same run:

- ``idle_server``: an environment's application imported in a fresh interpreter; a server that nobody uses.
- ``open_1024``: 1,024 sessions opened and reset, and what they hold while nothing happens: memory that server and
  client have grown by, threads. The environment has synchronous hooks. 64 sessions are played in and closed before.
- ``held_1024``: the same, as the bytes that Python objects hold (tracemalloc).
- ``episodes_64``, ``episodes_256``, ``episodes_1024``: so many at once, each of a new session, a reset, four steps and
  the close. Rows are named as in `steps.py`.
- ``frame``, ``frame_bytes``: an observation of 210 x 160 x 3 random bytes, one session; as the public package has it
  (a list of integers) and as a numpy array: time and CPU of both sides, bytes from the server. The public package's
  are fewer than the JSON's, since both of its ends compress messages.

    python benchmarks/sessions.py [--rounds 3] [--quick] [--only frame] [--resume]
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace

import _process
from _load import Job, run_load
from _record import Target, spread
from _relay import relayed
from _rounds import Options, Part, Row, Table, keep, measure, median, options_of, ratio, targets_of
from _servers import Package, Serving, python_of, running, variables_of

PACKAGES = [
    "openenv-trl", "pydantic", "orjson", "ormsgpack", "picows", "uvicorn", "uvloop", "websockets", "fastapi", "numpy",
]  # fmt: skip
PUBLIC, SYNC, LOOP = Serving("public"), Serving("ours"), Serving("ours", execution="loop")
FRAME_BYTES = 210 * 160 * 3
FRAMES = 20
BOTH: tuple[Package, Package] = ("public", "ours")


def main() -> None:
    assert __doc__ is not None
    parts: dict[str, Part | Callable[[Options], Table]] = {
        "idle_server": idle_server,
        "open_1024": Part(idle_rows(traced=False)),
        "held_1024": Part(idle_rows(traced=True)),
        "episodes_64": Part(episode_rows(64)),
        "episodes_256": Part(episode_rows(256), longer=1.6),
        "episodes_1024": Part(episode_rows(1024), longer=4),
        "frame": Part(frame_rows()),
        "frame_bytes": frame_bytes,
    }
    options = options_of(__doc__, list(parts))
    tables = measure("sessions", parts, options)
    results = {"rounds": options.rounds, "seconds": options.seconds, "frame_raw_bytes": FRAME_BYTES, **tables}
    keep("sessions", results, targets_in(tables), PACKAGES, options.quick)


def idle_rows(traced: bool) -> dict[str, Row]:
    """1,024 sessions that do nothing."""
    job = Job("idle", sessions=1024, traced=traced)
    rows = {
        "public_sync": Row(PUBLIC, "public", job),
        "openenv_wire_sync": Row(SYNC, "ours", replace(job, wire="openenv")),
        "native_wire_sync": Row(SYNC, "ours", replace(job, wire="native")),
        "native_wire_loop": Row(LOOP, "ours", replace(job, wire="native")),
    }
    return {name: replace(row, serving=replace(row.serving, traced=traced)) for name, row in rows.items()}


def episode_rows(sessions: int) -> dict[str, Row]:
    """Whole episodes, so many at once."""
    job = Job("episodes", sessions=sessions)
    return {
        "public_sync": Row(PUBLIC, "public", job),
        "openenv_wire_sync": Row(SYNC, "ours", replace(job, wire="openenv")),
        "openenv_wire_loop": Row(LOOP, "ours", replace(job, wire="openenv")),
        "native_wire_sync": Row(SYNC, "ours", replace(job, wire="native")),
        "native_wire_loop": Row(LOOP, "ours", replace(job, wire="native")),
    }


def frame_rows() -> dict[str, Row]:
    """One session that is shown frames."""
    numbers, array = Job("steps", client="frame"), Job("steps", client="array")
    return {
        "public_list": Row(Serving("public", "frame"), "public", numbers),
        "openenv_wire_list": Row(Serving("ours", "frame"), "ours", replace(numbers, wire="openenv")),
        "openenv_wire_array": Row(Serving("ours", "array"), "ours", replace(array, wire="openenv")),
        "native_wire_list": Row(Serving("ours", "frame"), "ours", replace(numbers, wire="native")),
        "native_wire_array": Row(Serving("ours", "array"), "ours", replace(array, wire="native")),
    }


def frame_bytes(options: Options) -> Table:
    """How many bytes a frame is on each wire, the frame and all that goes with it."""
    table: Table = {}
    for name, row in frame_rows().items():
        with running(row.serving) as server, relayed(server.url) as relay:
            job = replace(row.job, kind="marathon", steps=FRAMES, url=relay.url, server_pid=server.pid)
            run_load(row.client, job)
            # The reset shows a frame too.
            per_frame = relay.to_client_bytes / (FRAMES + 1)
        table[name] = {"bytes": round(per_frame), "ratio_to_raw": round(per_frame / FRAME_BYTES, 3)}
    return table


def idle_server(options: Options) -> Table:
    """Import of a served environment, and the memory of a server that nobody uses."""
    taken: dict[Package, list[dict[str, float]]] = {package: [] for package in BOTH}
    for package in BOTH:
        import_seconds(package)  # compiles what is not compiled yet
    for _ in range(options.rounds):
        for package in BOTH:
            wall_s, cpu_s = import_seconds(package)
            with running(Serving(package)) as server:
                time.sleep(1.0)
                figures = {
                    "import_wall_s": wall_s,
                    "import_cpu_s": cpu_s,
                    "start_to_healthy_s": server.start_s,
                    "idle_rss_mb": _process.resident_kb(server.pid) / 1024,
                    "idle_pss_mb": _process.proportional_kb(server.pid) / 1024,
                    "idle_threads": float(_process.threads(server.pid)),
                }
            taken[package].append(figures)
    return {
        package: {name: spread([each[name] for each in figures]) for name in figures[0]}
        for package, figures in taken.items()
    }


def import_seconds(package: Package) -> tuple[float, float]:
    """Wall and CPU seconds of a fresh interpreter that imports the echo's application and what serves it."""
    serving = "uvicorn" if package == "public" else "openenv_trl.server.serving"
    command = [python_of(package), "-c", f"import {serving}, served.apps"]
    begin = time.perf_counter()
    process = subprocess.Popen(command, env={**variables_of(package), "SERVED": "echo"})
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"served.apps cannot be imported with the package called {package}")
    return seconds, usage.ru_utime + usage.ru_stime


def targets_in(tables: dict[str, Table]) -> list[Target]:
    """What was aimed at, of what these tables tell."""
    idle, opened, frames = (tables.get(name, {}) for name in ("idle_server", "open_1024", "frame_bytes"))
    middle, large = tables.get("episodes_256", {}), tables.get("episodes_1024", {})
    base, of, rate = "public_sync", "ratio to the public package", "episodes_per_s"
    whole = "open_and_reset_s"
    return targets_of(
        [
            ("wall s, import of a served environment", median(idle, "ours", "import_wall_s"), "<= 0.6"),
            ("MB resident, idle server", median(idle, "ours", "idle_rss_mb"), "<= 60"),
            (f"s, open and reset 1,024, native wire, {of}", ratio(opened, "native_wire_sync", base, whole), "<= 0.125"),
            (
                "KB of server memory per idle session, native wire",
                median(opened, "native_wire_sync", "server_pss_kb_per_session"),
                "<= 8",
            ),
            (
                "KB of client memory per idle session, native wire",
                median(opened, "native_wire_sync", "client_pss_kb_per_session"),
                "<= 8",
            ),
            (
                "threads of a server with 1,024 idle sessions of a synchronous environment",
                median(opened, "native_wire_sync", "server_threads"),
                "<= 40",
            ),
            (f"episodes/s, OpenEnv wire, 256 at once, {of}", ratio(middle, "openenv_wire_loop", base, rate), ">= 3"),
            (f"episodes/s, OpenEnv wire, 1,024 at once, {of}", ratio(large, "openenv_wire_loop", base, rate), ">= 3"),
            (f"episodes/s, native wire, 256 at once, {of}", ratio(middle, "native_wire_loop", base, rate), ">= 10"),
            (f"episodes/s, native wire, 1,024 at once, {of}", ratio(large, "native_wire_loop", base, rate), ">= 20"),
            (
                "bytes of an Atari frame on the native wire, ratio to its raw size",
                frames.get("native_wire_array", {}).get("ratio_to_raw"),
                "<= 1.1",
            ),
        ],
        WHY,
    )


WHY: dict[str, str] = {
    "wall s, import of a served environment": (
        "The machine was slow in these minutes: a bare interpreter took 1.3 times its usual time, the public package "
        "4.0 s, five times ours. In quieter minutes it is 0.53 s; FastAPI and pydantic's models are most of it."
    ),
}


if __name__ == "__main__":
    main()
