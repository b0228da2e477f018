"""Whether an owner lives is told from its process, and never guessed where that cannot be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from openenv_trl.providers.owner import Owner, OwnerState, process_mark, this_owner, this_place

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
