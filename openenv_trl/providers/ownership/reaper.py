"""The process beside an owner that waits for its death, and then has removed what it had.

It is run as ``python -I -S reaper.py OWNER_ID OWNER_PID OWNER_PROCESS`` and imports only the standard library, so that
it starts quickly and needs little while it waits. It leaves the owner's session and process tree, so that whatever ends
the owner, also with all that is below it, does not end the reaper too.

On its standard input the owner writes a line of JSON a place: ``{"key": 1, "place": {...}}`` before it starts anything
there, ``{"key": 1}`` when nothing is left there. The owner is dead when its process is (a pidfd where there is one), or
when the pipe ends. Then, if a place is left, this process becomes the one that runs ``sweep.py``.

With OPENENV_TRL_REAPER_LOG in the environment, what the sweep says is appended to that file.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys

CHECK_MS = 500  # how often the owner is looked for, where there is no pidfd


class Places:
    """Where the owner has something, from what it has written."""

    def __init__(self) -> None:
        self._open: dict[object, object] = {}
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take a piece of what it wrote."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "place" in said:
                self._open[said["key"]] = said["place"]
            else:
                self._open.pop(said["key"], None)

    def left(self) -> list[object]:
        """The places that were not left in order, each once."""
        distinct: list[object] = []
        for place in self._open.values():
            if place not in distinct:
                distinct.append(place)
        return distinct


def mark(pid: int) -> str:
    """When a process was started, as the owner's labels say it; empty where there is none, or no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def open_owner(pid: int, process: str) -> int | None:
    """A descriptor that can be read when the owner has died; None where there is no such thing.

    Raises:
        ProcessLookupError: It has died already.
    """
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, PermissionError):
        return None
    except OSError as error:
        if isinstance(error, ProcessLookupError):
            raise
        return None
    # One that has ended, or cannot be seen (hidepid), has no mark; its descriptor tells.
    if mark(pid) not in ("", process):
        os.close(handle)
        raise ProcessLookupError(pid)
    return handle


def wait_for_death(pid: int, process: str, places: Places) -> None:
    """Returns when the owner has died, with all that it wrote read."""
    try:
        handle = open_owner(pid, process)
    except ProcessLookupError:
        read_rest(places)
        return
    poll = select.poll()
    poll.register(0, select.POLLIN)
    if handle is not None:
        poll.register(handle, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll(None if handle is not None else CHECK_MS)}
        if 0 in ready:
            data = os.read(0, 65_536)
            if not data:
                return
            places.feed(data)
        elif handle in ready or (handle is None and not lives(pid)):
            read_rest(places)
            return


def lives(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def read_rest(places: Places) -> None:
    """What is in the pipe still, without waiting for a forked sibling of the owner that holds it open."""
    os.set_blocking(0, False)
    try:
        while data := os.read(0, 65_536):
            places.feed(data)
    except BlockingIOError:
        return


def leave_the_owners_tree() -> None:
    """Becomes nobody's child: whoever ends a process tree does not find this one."""
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # Whoever asks everything to end, as a shutdown does, means the owner first: its death ends this process too,
        # and what it becomes then is soon done.
        signal.signal(number, signal.SIG_IGN)


def main(arguments: list[str]) -> None:
    """Reads the command line that the owner writes, and waits."""
    owner_id, pid, process = arguments
    leave_the_owners_tree()
    places = Places()
    wait_for_death(int(pid), process, places)
    left = places.left()
    if not left:
        return
    log = os.environ.get("OPENENV_TRL_REAPER_LOG")
    if log:
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
    sweep = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sweep.py")
    os.execv(sys.executable, [sys.executable, sweep, owner_id, json.dumps(left)])


if __name__ == "__main__":
    main(sys.argv[1:])
