"""Many environments that wait at once: blocking ones in threads, and sixteen thousand patient ones.

- ``blocking_256``, ``blocking_1024``: so many sessions of a synchronous environment that sleeps 50 ms in each step,
  ours and the public package. Ideal are 20 steps/s of each session; the figure is the share of it that is reached.
- ``patient_16384``: that many sessions on the native wire of one server, over 16 connections, whose asynchronous steps
  take one second. Each takes three, all at once. Ours only: the public package needs a socket and a thread for each.

    python benchmarks/fan_out.py [--rounds 3] [--quick] [--only blocking_256] [--resume]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from _load import Job
from _record import Target
from _rounds import Options, Part, Row, Table, keep, measure, median, options_of, targets_of
from _servers import Serving

PACKAGES = ["openenv-trl", "pydantic", "ormsgpack", "picows", "uvicorn", "uvloop", "websockets", "anyio"]
STEP_S = 0.05
PATIENT_SESSIONS = 16_384


def main() -> None:
    assert __doc__ is not None
    parts: dict[str, Part | Callable[[Options], Table]] = {
        "blocking_256": Part(blocking_rows(256), longer=1.6),
        "blocking_1024": Part(blocking_rows(1024), longer=2.4),
        "patient_16384": Part(patient_rows()),
    }
    options = options_of(__doc__, list(parts))
    tables = measure("fan_out", parts, options)
    for sessions in (256, 1024):
        for figures in tables.get(f"blocking_{sessions}", {}).values():
            if "steps_per_s" in figures:
                ideal = sessions / STEP_S
                shares = {name: round(value / ideal, 4) for name, value in figures["steps_per_s"].items()}
                figures["share_of_ideal"] = shares
    results = {"rounds": options.rounds, "seconds": options.seconds, "step_s": STEP_S, **tables}
    keep("fan_out", results, targets_in(tables), PACKAGES, options.quick)


def blocking_rows(sessions: int) -> dict[str, Row]:
    """Synchronous environments that sleep."""
    job = Job("steps", sessions=sessions)
    public, ours = Serving("public", "sleeping"), Serving("ours", "sleeping")
    return {
        "public": Row(public, "public", job),
        "openenv_wire": Row(ours, "ours", replace(job, wire="openenv")),
        "native_wire": Row(ours, "ours", replace(job, wire="native")),
    }


def patient_rows() -> dict[str, Row]:
    """A great many sessions that wait without a thread."""
    job = Job("marathon", sessions=PATIENT_SESSIONS, wire="native", connections=16, steps=3)
    return {"native_wire": Row(Serving("ours", "patient"), "ours", job)}


def targets_in(tables: dict[str, Table]) -> list[Target]:
    """What was aimed at, of what these tables tell."""
    patient = tables.get("patient_16384", {})
    p99_ms = median(patient, "native_wire", "p99_ms")
    return targets_of(
        [
            *(
                (
                    f"share of ideal, 256 synchronous environments that sleep 50 ms, {wire}",
                    median(tables.get("blocking_256", {}), row, "share_of_ideal"),
                    ">= 0.9",
                )
                for wire, row in (("OpenEnv wire", "openenv_wire"), ("native wire", "native_wire"))
            ),
            (
                "share of 16,384 sessions whose steps all succeeded",
                median(patient, "native_wire", "success_share"),
                ">= 1",
            ),
            ("p99 s of a one-second step, 16,384 sessions", p99_ms and p99_ms / 1000, "<= 2"),
            ("s, open and reset 16,384 sessions", median(patient, "native_wire", "open_and_reset_s"), "<= 60"),
        ],
        WHY,
    )


WHY: dict[str, str] = {}


if __name__ == "__main__":
    main()
