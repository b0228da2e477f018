"""What owners run as processes of this machine, told by the environment variables that every one of them inherits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import anyio
import anyio.to_thread
import psutil

from openenv_trl.providers.owner import OWNER_VARIABLE, Owner
from openenv_trl.providers.ownership.things import Inventory, Thing

_SUPERVISORS_OWN = 5  # words of its command line that are its own
_GRACE_S = 5.0
_KILL_S = 5.0


class ProcessInventory(Inventory):
    """The processes of this user; root's are all. Those inside containers are the containers'."""

    @property
    def name(self) -> str:
        """The place in words."""
        return "processes of this machine"

    async def __aenter__(self) -> ProcessInventory:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def list(self, owner_id: str | None = None) -> list[Thing]:
        """Return the processes at the top: those below another one of the same owner end with it."""
        return await anyio.to_thread.run_sync(_list, owner_id)

    async def remove(self, things: Sequence[Thing]) -> list[str]:
        """End processes and what is below them: SIGTERM, and SIGKILL for what is left a moment later."""
        return await anyio.to_thread.run_sync(_end, things)


def _list(owner_id: str | None) -> list[Thing]:
    owners: dict[int, Owner] = {}
    processes: dict[int, psutil.Process] = {}
    own = {process.pid for process in [psutil.Process(), *psutil.Process().parents()]}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            # Kernel threads and other users' processes have no environment that could be read.
            owner = Owner.from_variables({OWNER_VARIABLE: "", **process.environ()})
            wanted = owner is not None and owner_id in (None, owner.id) and process.pid not in own
            if owner is not None and wanted and not _in_container(process.pid):
                owners[process.pid], processes[process.pid] = owner, process
    things: list[Thing] = []
    for pid, process in processes.items():
        with suppress(psutil.Error):
            parent = owners.get(process.ppid())
            if parent is None or parent.id != owners[pid].id:
                command = _command(process.cmdline()) or process.name()
                things.append(Thing("process", str(pid), command, owners[pid], process.status(), process.create_time()))
    return things


def _command(words: Sequence[str]) -> str:
    """A process's command; of a supervisor, what it supervises."""
    supervisor = next(
        (number for number, word in enumerate(words[:5]) if word.endswith("/providers/supervisor.py")), None
    )
    return " ".join(words if supervisor is None else words[supervisor + _SUPERVISORS_OWN :])


def _in_container(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino != Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return False


def _end(things: Sequence[Thing]) -> list[str]:
    ended: list[psutil.Process] = []
    for thing in things:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(thing.id))
            if thing.created is None or abs(process.create_time() - thing.created) < 1.0:  # else it is a later one
                ended += [process, *process.children(recursive=True)]
    failures: list[str] = []
    for process in ended:
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            continue
        except psutil.Error as error:
            failures.append(f"process {process.pid} cannot be ended: {error}")
    _, left = psutil.wait_procs(ended, _GRACE_S)
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    _, left = psutil.wait_procs(left, _KILL_S)
    return failures + [f"process {process.pid} does not end" for process in left if not failures]
