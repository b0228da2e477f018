"""Steps per second: the public package and ours, on both wires, in the same run.

An environment that does nothing (`{message}` -> `{echo}`), served by each package in a process of its own; the load
comes from another process, whose sessions are typed clients that step without a pause. The environment and its
client are one source (`benchmarks/_served`); between the packages only import lines differ. Rows whose name says

- ``sync`` have synchronous hooks, as most environments: in threads on either server;
- ``async`` have asynchronous hooks;
- ``loop`` are the synchronous environment with ``EXECUTION = "loop"``, as hooks that take microseconds allow.

Other than that a row's name is the wire of our client on our server; what a row is exactly stands in `step_rows`.
CPU seconds are those of the whole process. The rows called ``limit`` are two socket libraries with the same JSON and
nothing behind it. Parts: 1, 64 and 1,024 sessions; and tool calls of an MCP environment as steps, at 1 and 64.

    python benchmarks/steps.py [--rounds 3] [--quick] [--only 64_sessions] [--resume]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from _load import Job
from _record import Target
from _rounds import Part, Row, Table, keep, measure, options_of, ratio, targets_of
from _servers import Serving

PACKAGES = [
    "openenv-trl", "pydantic", "orjson", "ormsgpack", "picows", "uvicorn", "uvloop", "websockets", "anyio", "fastmcp",
]  # fmt: skip
PUBLIC = Serving("public")
PUBLIC_ASYNC = Serving("public", "async_echo")
SYNC = Serving("ours")
ASYNC = Serving("ours", "async_echo")
LOOP = Serving("ours", execution="loop")


def main() -> None:
    assert __doc__ is not None
    parts = {
        "1_session": Part(step_rows(1)),
        "64_sessions": Part(step_rows(64)),
        "1024_sessions": Part(step_rows(1024), longer=1.6),
        "mcp_1_session": Part(tool_rows(1)),
        "mcp_64_sessions": Part(tool_rows(64), longer=1.6),
    }
    options = options_of(__doc__, list(parts))
    tables = measure("steps", parts, options)
    ratios = {part: ratios_of(table) for part, table in tables.items()}
    results = {"rounds": options.rounds, "seconds": options.seconds, **tables, "ratios_to_public": ratios}
    keep("steps", results, targets_in(tables), PACKAGES, options.quick)


def step_rows(sessions: int) -> dict[str, Row]:
    """The rows of a table with so many sessions at once."""
    job = Job("steps", sessions=sessions)
    openenv, native = replace(job, wire="openenv"), replace(job, wire="native")
    rows = {
        "public_sync": Row(PUBLIC, "public", job),
        "public_async": Row(PUBLIC_ASYNC, "public", job),
        "public_client_on_our_server_sync": Row(SYNC, "public", job),
        "public_client_on_our_server_loop": Row(LOOP, "public", job),
        "our_client_on_public_server_sync": Row(PUBLIC, "ours", job),
        "our_client_on_public_server_async": Row(PUBLIC_ASYNC, "ours", job),
        "openenv_wire_sync": Row(SYNC, "ours", openenv),
        "openenv_wire_async": Row(ASYNC, "ours", openenv),
        "openenv_wire_loop": Row(LOOP, "ours", openenv),
        "native_wire_sync": Row(SYNC, "ours", native),
        "native_wire_async": Row(ASYNC, "ours", native),
        "native_wire_loop": Row(LOOP, "ours", native),
        "native_wire_loop_client_on_uvloop": Row(LOOP, "ours", replace(native, uvloop=True)),
    }
    if sessions > 1:
        own = replace(native, connections=sessions)
        rows["native_wire_loop_connection_per_session"] = Row(LOOP, "ours", own)
    if sessions <= 64:  # a thread for each session
        rows |= {
            "public_sync_blocking_client": Row(PUBLIC, "public", replace(job, blocking=True)),
            "openenv_wire_loop_blocking_client": Row(LOOP, "ours", replace(openenv, blocking=True)),
            "native_wire_loop_blocking_client": Row(LOOP, "ours", replace(native, blocking=True)),
        }
    rows |= {
        "limit_websockets": Row(Serving("websockets"), "ours", replace(job, client="websockets")),
        "limit_picows": Row(Serving("picows"), "ours", replace(job, client="picows")),
    }
    return rows


def tool_rows(sessions: int) -> dict[str, Row]:
    """The rows of a table of tool calls: as steps, and by the client's ``call_tool``."""
    step, call = Job("steps", client="tool", sessions=sessions), Job("steps", client="call_tool", sessions=sessions)
    public, threads, loop = Serving("public", "tools"), Serving("ours", "tools"), Serving("ours", "tools", "loop")
    return {
        "public_step": Row(public, "public", step),
        "public_call_tool": Row(public, "public", call),
        "openenv_wire_step_sync": Row(threads, "ours", replace(step, wire="openenv")),
        "openenv_wire_step_loop": Row(loop, "ours", replace(step, wire="openenv")),
        "native_wire_step_sync": Row(threads, "ours", replace(step, wire="native")),
        "native_wire_step_loop": Row(loop, "ours", replace(step, wire="native")),
        "openenv_wire_call_tool_loop": Row(loop, "ours", replace(call, wire="openenv")),
        "native_wire_call_tool_loop": Row(loop, "ours", replace(call, wire="native")),
    }


def ratios_of(table: Table) -> dict[str, Any]:
    """Each row's steps a second and CPU, as a multiple of the public package's row that is like it."""
    ratios: dict[str, Any] = {}
    for row in table:
        base = base_of(row)
        if base is None or ratio(table, row, base, "steps_per_s") is None:
            continue
        ratios[row] = {
            "to": base,
            "steps_per_s": ratio(table, row, base, "steps_per_s"),
            "p50": ratio(table, row, base, "p50_ms"),
            "p99": ratio(table, row, base, "p99_ms"),
            "server_cpu": ratio(table, row, base, "server_cpu_s_per_10k_steps"),
            "client_cpu": ratio(table, row, base, "client_cpu_s_per_10k_steps"),
        }
    return ratios


def base_of(row: str) -> str | None:
    """The row that a row is compared with."""
    if row.startswith(("public_step", "public_sync", "public_async", "public_call", "limit", "run")):
        return "public_sync" if row == "public_async" else None
    if "call_tool" in row:
        return "public_call_tool"
    if "_step_" in row:
        return "public_step"
    if "blocking" in row:
        return "public_sync_blocking_client"
    return "public_async" if row.endswith("async") else "public_sync"


def targets_in(tables: dict[str, Table]) -> list[Target]:
    """What was aimed at, of what these tables tell."""
    one, many, most = (tables.get(f"{name}", {}) for name in ("1_session", "64_sessions", "1024_sessions"))
    tool, tools = tables.get("mcp_1_session", {}), tables.get("mcp_64_sessions", {})
    steps, cpu, base = "steps_per_s", "server_cpu_s_per_10k_steps", "public_sync"
    of = "ratio to the public package"
    return targets_of(
        [
            (
                f"steps/s, OpenEnv wire, 64 sessions, hooks on the loop, {of}",
                ratio(many, "openenv_wire_loop", base, steps),
                ">= 4",
            ),
            (
                f"steps/s, OpenEnv wire, 64 sessions, synchronous hooks in threads, {of}",
                ratio(many, "openenv_wire_sync", base, steps),
                ">= 2.5",
            ),
            (
                f"server CPU per step, OpenEnv wire, 64 sessions, hooks on the loop, {of}",
                ratio(many, "openenv_wire_loop", base, cpu),
                "<= 0.333",
            ),
            (
                f"server CPU per step, OpenEnv wire, 64 sessions, synchronous hooks in threads, {of}",
                ratio(many, "openenv_wire_sync", base, cpu),
                "<= 0.333",
            ),
            *(
                (f"steps/s, {whose}, {count}, ratio to the public pair", ratio(table, row, base, steps), aim)
                for whose, row, aim in (
                    ("the public client on our server", "public_client_on_our_server_sync", ">= 1.5"),
                    ("our client on the public server", "our_client_on_public_server_sync", ">= 1"),
                    ("our client on the public server", "our_client_on_public_server_sync", ">= 1.5"),
                )
                for count, table in (("1 session", one), ("64 sessions", many), ("1,024 sessions", most))
            ),
            (f"steps/s, native wire, 64 sessions, {of}", ratio(many, "native_wire_loop", base, steps), ">= 9"),
            (f"steps/s, native wire, 1,024 sessions, {of}", ratio(most, "native_wire_loop", base, steps), ">= 14"),
            (
                f"p99 of a step, native wire, 1,024 sessions, {of}",
                ratio(most, "native_wire_loop", base, "p99_ms"),
                "<= 0.2",
            ),
            (
                f"steps/s, native codec, a connection per session, 64 sessions, {of}",
                ratio(many, "native_wire_loop_connection_per_session", base, steps),
                ">= 5",
            ),
            (
                f"p50 of a step, native wire, 1 session, {of}",
                ratio(one, "native_wire_loop", base, "p50_ms"),
                "<= 0.167",
            ),
            (f"MCP tool steps/s, 1 session, {of}", ratio(tool, "native_wire_step_loop", "public_step", steps), ">= 30"),
            (
                f"MCP tool steps/s, 64 sessions, {of}",
                ratio(tools, "native_wire_step_loop", "public_step", steps),
                ">= 50",
            ),
        ],
        WHY,
    )


_PUBLIC_SERVER = (
    "The public server is what is waited for: a load generator in C gets 1.1 to 1.4 times as many steps out of it as "
    "its own client does."
)
WHY: dict[str, str] = {
    f"steps/s, our client on the public server, {count}, ratio to the public pair": _PUBLIC_SERVER
    for count in ("1 session", "64 sessions", "1,024 sessions")
} | {
    "p50 of a step, native wire, 1 session, ratio to the public package": (
        "The sockets' round trip is most of it: two bare picows sockets take 0.11 ms in the same run, more "
        "than a quarter of the public package's p50, which is 0.41 ms here and was 0.58 ms where the aim was set."
    ),
    "MCP tool steps/s, 1 session, ratio to the public package": (
        "One session waits for one round trip at a time: two bare picows sockets make 8,600 a second, 28 times the "
        "public package's 304, which was 219 where the aim was set. With 64 sessions the ratio is 88."
    ),
}


if __name__ == "__main__":
    main()
