"""Whether an owner lives is told from its process, and never guessed where that cannot be seen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from openenv_trl.providers.owner import Owner, OwnerState, process_mark, state_of_process, this_owner, this_place

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="a place is told by Linux's namespaces")]


def of(process: subprocess.Popen[bytes]) -> Owner:
    return replace(this_owner(), id="other", pid=process.pid, process=process_mark(process.pid))


def test_an_owner_is_told_from_its_labels_and_from_its_variables():
    owner = this_owner()
    assert Owner.from_labels(owner.labels("echo-0", 60.0)) == owner
    from_variables = Owner.from_variables(owner.variables())
    assert from_variables is not None
    assert (from_variables.id, from_variables.pid, from_variables.state) == (owner.id, os.getpid(), OwnerState.ALIVE)
    assert Owner.from_labels({"openenv-trl.name": "echo-0"}) is None
    assert Owner.from_variables({}) is None


def test_a_process_lives_until_it_has_ended_also_before_anyone_has_collected_it():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = of(process)
        assert owner.state is OwnerState.ALIVE
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert owner.state is OwnerState.DEAD
    assert owner.state is OwnerState.DEAD


def test_a_later_process_with_the_same_id_is_not_the_owner():
    assert replace(this_owner(), process="1").state is OwnerState.DEAD


def test_of_an_owner_in_another_container_or_on_another_machine_nothing_is_said():
    machine, boot, namespace = this_place().split(".")
    gone = replace(this_owner(), pid=2**22 + 1)
    assert gone.state is OwnerState.DEAD
    for place in (f"{machine}.{boot}.1", f"other.{boot}.{namespace}", "unknown.0.0", "strange"):
        assert replace(gone, place=place).state is OwnerState.ELSEWHERE, place
    assert replace(gone, place="", host="cluster-7").state is OwnerState.ELSEWHERE


def test_an_owner_from_before_this_machines_last_start_is_dead():
    machine, _, namespace = this_place().split(".")
    if machine == "unknown":
        pytest.skip("the machine has no id")
    assert replace(this_owner(), place=f"{machine}.before.{namespace}").state is OwnerState.DEAD


def test_a_forked_copy_of_an_owner_is_another_owner():
    reading, writing = os.pipe()
    owner = this_owner()
    child = os.fork()
    if child == 0:
        os.write(writing, f"{this_owner().id} {this_owner().pid}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    owner_id, pid = os.read(reading, 100).decode().split()
    os.close(reading)
    os.close(writing)
    assert owner_id != owner.id
    assert int(pid) == child


@pytest.mark.parametrize(
    ("seen", "exists", "state"),
    [
        ("77", True, OwnerState.ALIVE),
        ("78", True, OwnerState.DEAD),  # a later one
        ("", True, OwnerState.DEAD),  # it has ended, and nobody has collected it
        (None, True, OwnerState.UNKNOWN),
        (None, False, OwnerState.DEAD),
    ],
)
def test_an_owner_that_cannot_be_seen_is_not_taken_for_dead(seen, exists, state):
    assert state_of_process(4711, "77", lambda pid: seen, lambda pid: exists) is state


def test_another_users_owner_lives_also_where_proc_hides_it():
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root, to mount /proc with hidepid")
    code = (
        "import os, sys; from openenv_trl.providers.owner import state_of_process as state; "
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); "
        "[print(os.path.exists(f'/proc/{pid}'), state(int(pid), '1').value) for pid in sys.argv[1:]]"
    )
    mount = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", code]
    run = subprocess.run([*command, str(os.getpid()), str(2**22 + 1)], capture_output=True, text=True)
    if "mount" in run.stderr:
        pytest.skip(f"/proc cannot be mounted with hidepid here: {run.stderr}")
    assert run.stdout.splitlines() == ["False unknown", "False dead"], run.stderr
