"""A process that puts load on a server: sessions of an environment client, as a user writes them.

`run_load` starts it with the interpreter of the client's package, gives it a `Job` as JSON, and returns the figures
that it prints. The figures of the server are read by the same process, so that they are of the same moments.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

LONGEST_S = 900.0


@dataclass(frozen=True)
class Job:
    """What to do.

    Attributes:
        kind: "steps": sessions that step without a pause for ``duration_s``. "episodes": as many at once, one after
            another, of a new session, a reset, four steps, and the close. "idle": sessions are opened and reset, then
            do nothing. "marathon": sessions are opened and reset, then each takes ``steps`` steps.
        url: The server.
        server_pid: The server's process.
        client: Which client: "echo", "tool" (steps that are tool calls), "call_tool", "frame", "array"; "websockets"
            and "picows" for the bare libraries.
        sessions: How many sessions at once.
        wire: Ours only: the wire to insist on.
        connections: Ours only, on the native wire: over how many connections the sessions are spread.
        blocking: Whether each session is a ``.sync()`` client in a thread of its own.
        uvloop: Whether the event loop is uvloop's.
        traced: Whether to count what Python objects hold. It is slower so.
        warm_s: Seconds before the figures are taken.
        duration_s: Seconds in which they are taken.
        steps: Steps of a marathon.
    """

    kind: Literal["steps", "episodes", "idle", "marathon"]
    url: str = ""
    server_pid: int = 0
    client: str = "echo"
    sessions: int = 1
    wire: str = ""
    connections: int = 1
    blocking: bool = False
    uvloop: bool = False
    traced: bool = False
    warm_s: float = 0.7
    duration_s: float = 2.5
    steps: int = 3


def run_load(package: str, job: Job) -> dict[str, float]:
    """Run the job in a process with the client of that package, and return its figures."""
    from _servers import python_of, variables_of

    variables = variables_of("public" if package == "public" else "ours")
    command = [python_of(package), __file__, json.dumps(asdict(job))]
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, timeout=LONGEST_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"The load ended with status {done.returncode}: {job}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    import _playing

    job = Job(**json.loads(sys.argv[1]))
    if job.blocking:
        figures = _playing.blocking_steps(job)
    else:
        play: Any = getattr(_playing, job.kind)
        if job.uvloop:
            import uvloop

            figures = uvloop.run(play(job))
        else:
            figures = asyncio.run(play(job))
    print(json.dumps(figures), flush=True)
    os._exit(0)  # what a client leaves behind is not of interest here


if __name__ == "__main__":
    main()
