"""A control group for every session, where the server may make one: memory and processes of the session as a whole.

Both versions of the kernel's interface are known. In version 2 a group that holds processes gives no controllers on, so
that a server alone in a container moves into a group of its own beside those of its sessions.

Source: ``admin-guide/cgroup-v2.rst`` and ``admin-guide/cgroup-v1`` of Linux's documentation.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from coding_env.sandbox.limits import Limits

_PREFIX = "openenv-coding-"
_BESIDE_THE_AGENTS = 3  # the keeper, the process it is forked by, and a worker that is just being replaced
_END_S = 2.0  # for the last processes of a group to be gone
CONTROLLERS = frozenset({"memory", "pids"})
"""What is counted for a session as a whole."""


@dataclass
class Group:
    """A session's group: a folder in each of the kernel's hierarchies."""

    folders: list[Path] = field(default_factory=list[Path])
    descriptors: list[int] = field(default_factory=list[int])
    """A process that writes "0" to each of them is in the group."""
    released: bool = False
    """Whether nobody is to join it any more."""

    def release(self) -> None:
        """Take that the session is over: the group goes when its last process is gone."""
        self.released = True

    def close_descriptors(self) -> None:
        """Close them: whoever was to have them has copies."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def remove(self) -> bool:
        """Remove it; False where processes are still in it."""
        for folder in list(self.folders):
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                continue
            self.folders.remove(folder)
        return not self.folders


class ControlGroups:
    """The groups of one sandbox's sessions.

    Args:
        parents: The folder that they are made in, in each of the kernel's hierarchies.
        limits: What each session may use.
    """

    def __init__(self, parents: list[Path], limits: Limits) -> None:
        name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        self._own = Group([parent / name for parent in parents])
        self._limits = limits
        self._count = 0
        self._made: list[Group] = []
        for folder in self._own.folders:
            self._found(folder)

    @property
    def folders(self) -> list[str]:
        """The folders that all groups are in."""
        return [str(folder) for folder in self._own.folders]

    @staticmethod
    def _found(folder: Path) -> None:
        folder.mkdir()
        _give_on(folder)

    def new(self) -> Group:
        """Make a group with the limits of a session.

        Raises:
            OSError: It cannot be made.
        """
        self._made = [group for group in self._made if not (group.released and group.remove())]
        self._count += 1
        group = Group()
        self._made.append(group)
        try:
            self._make(group)
        except OSError:
            group.close_descriptors()
            group.release()
            raise
        return group

    def _make(self, group: Group) -> None:
        limited: set[str] = set()
        for own in self._own.folders:
            folder = own / str(self._count)
            try:
                folder.mkdir()
            except FileNotFoundError:  # a first process has ended, and removed them all
                self._found(own)
                folder.mkdir()
            group.folders.append(folder)
            limited |= _limit(folder, self._limits)
            group.descriptors.append(os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        if not limited >= CONTROLLERS:
            raise OSError(0, f"it counts only {', '.join(sorted(limited)) or 'nothing'}")

    @contextlib.contextmanager
    def for_a_trial(self) -> Generator[list[int]]:
        """Give the descriptors of a group that a process may try to be in."""
        group = self.new()
        try:
            yield list(group.descriptors)
        finally:
            group.close_descriptors()
            group.release()

    def close(self) -> None:
        """Remove all of them, once the processes in them are gone; what is not gone in time is left."""
        deadline = time.monotonic() + _END_S
        while self._made or self._own.folders:
            self._made = [group for group in self._made if not group.remove()]
            if (not self._made and self._own.remove()) or time.monotonic() > deadline:
                return
            time.sleep(0.01)


def find(limits: Limits) -> tuple[ControlGroups | None, str]:
    """Return where groups can be made, or why they cannot."""
    parents, why = _parents()
    if not parents:
        return None, why
    for parent in parents:
        _sweep(parent)
    try:
        groups = ControlGroups(parents, limits)
    except OSError as error:
        return None, f"no group can be made in {parents[0]}: {error.strerror}"
    try:
        with groups.for_a_trial():
            return groups, ""
    except OSError as error:
        groups.close()
        return None, f"a group in {parents[0]} takes no limits: {error.strerror}"


def _parents() -> tuple[list[Path], str]:
    """The process's own group in the hierarchies that count memory and processes."""
    try:
        mounts, own = Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()
    except OSError as error:
        return [], str(error)
    paths: dict[str, str] = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    found: dict[str, Path] = {}
    unified: Path | None = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        names = set(options.split(","))
        if kind == "cgroup2":
            unified = _below(point, root, paths.get("", "/"))
        elif kind == "cgroup":
            for controller in names & CONTROLLERS:
                found[controller] = _below(point, root, paths.get(controller, "/"))
    if found.keys() >= CONTROLLERS:
        return sorted(set(found.values())), ""
    if unified is None:
        return [], "no control groups are mounted"
    return _version_two(unified, paths.get("", "/"))


def _version_two(own: Path, path: str) -> tuple[list[Path], str]:
    try:
        if not _controllers(own / "cgroup.controllers") >= CONTROLLERS:
            return [], f"{own} has not the controllers memory and pids"
        if not _controllers(own / "cgroup.subtree_control") >= CONTROLLERS:
            try:
                _give_on(own)
            except OSError:
                if not (path == "/" or _is_delegated(own)):
                    return [], f"{own} holds processes, and was not given to the server to divide (Delegate=yes)"
                _divide(own)
    except OSError as error:
        return [], f"{own} cannot be changed: {error.strerror}"
    return [own], ""


def _divide(own: Path) -> None:
    """Move a group's processes into one of their own within it, so that it can give its controllers on."""
    leaf = own / f"{_PREFIX}server"
    leaf.mkdir(exist_ok=True)
    for pid in (own / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            (leaf / "cgroup.procs").write_text(pid)
    _give_on(own)


def _is_delegated(own: Path) -> bool:
    """Whether systemd says that the group is the service's to divide."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            return os.getxattr(own, name) == b"1"
    return False


def _give_on(folder: Path) -> None:
    control = folder / "cgroup.subtree_control"  # which version 1 has not
    if control.exists():
        control.write_text(" ".join(f"+{name}" for name in sorted(CONTROLLERS)))


def _limit(folder: Path, limits: Limits) -> set[str]:
    """Set a group's limits, and return the controllers that have one."""
    memory, processes = str(limits.session_memory_mb << 20), str(limits.processes + _BESIDE_THE_AGENTS)
    limited: set[str] = set()
    for name, value in (
        ("memory.max", memory),
        ("memory.limit_in_bytes", memory),
        ("pids.max", processes),
        # With swap, where the kernel counts that.
        ("memory.swap.max", "0"),
        ("memory.memsw.limit_in_bytes", memory),
    ):
        file, controller = folder / name, name.partition(".")[0]
        if file.exists():
            with contextlib.suppress(OSError) if controller in limited else contextlib.nullcontext():
                file.write_text(value)
            limited.add(controller)
    return limited


def _controllers(file: Path) -> set[str]:
    return set(file.read_text().split())


def _below(point: str, root: str, path: str) -> Path:
    """Where a group is seen: its path within the hierarchy, below what of it is mounted."""
    inside = os.path.relpath(path, root)
    return Path(point) if inside.startswith("..") else Path(os.path.normpath(os.path.join(point, inside)))


def _sweep(parent: Path) -> None:
    """Remove what servers left that were killed."""
    for folder in parent.glob(f"{_PREFIX}*"):
        number = re.fullmatch(rf"{_PREFIX}(\d+)-\w+", folder.name)
        if number and not os.path.exists(f"/proc/{number[1]}"):
            for group in (*folder.glob("*/"), folder):
                with contextlib.suppress(OSError):
                    group.rmdir()
