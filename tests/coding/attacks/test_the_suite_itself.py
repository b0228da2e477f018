"""The suite is honest and harmless: attacks succeed where nothing confines them, and harm no more than that run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from attack_cases import breaches, load_cases
from attack_places import NotHereError, attack_bare, limited

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox's layers are Linux's")
CASES = {name: case for name, case in load_cases().items() if "bare" not in case}
SOME = list(CASES)[:: 1 if os.environ.get("OPENENV_TRL_ALL_ATTACKS") == "1" else 4]
VIOLENT = ("fork_bomb", "kill_everything", "memory_bomb", "disk_filler", "stopped_children", "fork_chain")


def attacked(case: dict[str, Any]) -> dict[str, Any]:
    try:
        return attack_bare(case)
    except NotHereError as error:
        pytest.skip(str(error))


def processes_of(user: int) -> list[str]:
    """Processes of a user on this machine, by their numbers."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid >= user:
                    found.append(entry.name)
            except FileNotFoundError:
                continue
    return found


@pytest.mark.parametrize("name", SOME)
def test_an_attack_succeeds_where_nothing_confines_it(name: str) -> None:
    result = attacked(CASES[name])
    assert breaches(CASES[name], result), result


@pytest.mark.skipif(sys.platform == "linux" and os.geteuid() != 0, reason="only root gives attacks users of their own")
@pytest.mark.parametrize("name", VIOLENT)
def test_a_hole_harms_only_its_own_run(name: str) -> None:
    for _ in range(3):
        disk = os.statvfs("/tmp")
        attacked(CASES[name])
        gone_by = time.monotonic() + 60  # killed with the suite's own program, some are still ending
        while processes_of(2_000_000_000):
            assert time.monotonic() < gone_by, processes_of(2_000_000_000)
            time.sleep(0.05)
        now = os.statvfs("/tmp")
        filled = (disk.f_bfree - now.f_bfree) * now.f_frsize
        if filled < 1 << 30:  # else it may be another program's
            break
    assert filled < 1 << 30


@pytest.mark.parametrize("who", ["root", "nobody", "mapped"])
def test_nothing_is_left_where_the_suite_is_killed(who: str) -> None:
    command = limited(who, ["/bin/sh", "-c", "echo started; sleep 3600"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.kill()
        assert process.stdout.read() == ""  # its last writer is gone


def test_what_is_run_inside_has_limits_of_its_own(tmp_path: Path) -> None:
    marker = tmp_path / "written"
    script = f"""
import os, resource
print(os.environ["OPENENV_ATTACK_LIMITS"], os.getpid(), len([x for x in os.listdir("/proc") if x.isdigit()]))
print(resource.getrlimit(resource.RLIMIT_FSIZE)[1], resource.getrlimit(resource.RLIMIT_CPU)[1])
for path in ({str(marker)!r}, "/proc/sys/kernel/core_pattern", "/etc/hostname"):
    try:
        open(path, "a").write("x")
        print("WRITTEN", path)
    except OSError:
        pass
print(open("/proc/net/dev").read().count(":"))
"""
    command = limited("mapped", ["/usr/bin/env", "python3", "-c", script])
    lines = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    if not lines[0].startswith("namespaces"):
        pytest.skip("this system gives no namespaces")
    assert int(lines[0].split()[2]) <= 3
    assert lines[1] == f"{64 << 20} 300"
    assert lines[2:] == ["1"]
    assert not marker.exists()
