"""A process that owns servers, to be killed: starts a provider, prints what its servers say, and waits.

Usage: owner.py REPLICAS FORK COMMAND...   (FORK is 1: a forked sibling lives on and holds every open file)
With SUPERVISOR in the environment, that file takes the supervisor's place.
"""

from __future__ import annotations

import os
import signal
import sys

import anyio

from openenv_trl.providers import ProcessProvider, replica_process


def say(*words: object) -> None:
    os.write(1, f"{' '.join(map(str, words))}\n".encode())  # one write: several threads speak


async def main() -> None:
    if "SUPERVISOR" in os.environ:
        replica_process._SUPERVISOR = os.environ["SUPERVISOR"]
    replicas, forks, command = int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3:]
    provider = ProcessProvider(
        command, replicas=replicas, stop_grace_s=0.5, on_log=lambda name, line: say("log", name, line)
    )
    await provider.start()
    if forks and os.fork() == 0:
        say("sibling", os.getpid())
        signal.pause()
    for supervisor, child in zip(provider.supervisor_pids, provider.server_pids, strict=True):
        say("supervisor", supervisor)
        say("child", child)
    for replica in provider.replicas:
        say("ready", replica.base_url)
    await anyio.sleep_forever()


anyio.run(main)
