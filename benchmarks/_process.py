"""What a process has used and holds, as the kernel counts it. Linux only; standard library only."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """CPU seconds that all of the process's threads have used, in user and kernel mode."""
    # After the name, which may hold anything: user and system time are fields 14 and 15 of the line.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def threads(pid: int) -> int:
    """Threads that the process has."""
    return _number(f"/proc/{pid}/status", "Threads:")


def resident_kb(pid: int) -> int:
    """Resident memory in KB."""
    return _number(f"/proc/{pid}/status", "VmRSS:")


def proportional_kb(pid: int) -> int:
    """Resident memory in KB, shared pages by the process's share of them."""
    return _number(f"/proc/{pid}/smaps_rollup", "Pss:")


def _number(path: str, label: str) -> int:
    for line in Path(path).read_text().splitlines():
        if line.startswith(label):
            return int(line.split()[1])
    raise LookupError(f"{path} has no '{label}'")
