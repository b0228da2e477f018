"""``ps`` shows whose everything is, and ``prune`` removes what is a dead owner's and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psutil
import pytest

from openenv_trl.providers.owner import Owner, this_owner
from tests.providers.engines import PrivateEngine, private_engine

pytestmark = [pytest.mark.docker]

IMAGE = "python:3.11-slim"
SLEEP = ("sleep", "1000")


def openenv_trl(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "openenv_trl.cli", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


@pytest.fixture(scope="module")
def engine() -> Iterator[PrivateEngine]:
    with private_engine([IMAGE]) as engine:
        yield engine


@pytest.fixture
def run(engine: PrivateEngine) -> Iterator[Callable[..., str]]:
    """Starts a container with labels; none is left after the test."""
    names: list[str] = []

    def start(labels: dict[str, str], *options: str, command: str = "run") -> str:
        name = f"mine-{uuid.uuid4().hex[:8]}"
        written = [word for label in labels.items() for word in ("--label", "=".join(label))]
        detach = ("--detach",) if command == "run" else ()
        engine.docker(command, *detach, "--name", name, "--stop-timeout", "0", *written, *options, IMAGE, *SLEEP)
        names.append(name)
        return name

    yield start
    engine.docker("rm", "--force", "--volumes", *names, check=False)


@pytest.fixture
def dead() -> Owner:
    """An owner that has ended."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        pass
    return replace(this_owner(), id=uuid.uuid4().hex, pid=ended.pid, process="1")


@pytest.fixture
def alive() -> Owner:
    """An owner that lives, and has nothing else: this process may own servers that other tests use."""
    return replace(this_owner(), id=uuid.uuid4().hex)


@pytest.fixture
def there(engine: PrivateEngine) -> Callable[[str], bool]:
    """Whether a container is there."""
    return lambda name: not engine.docker("inspect", "--type", "container", name, check=False).returncode


def listed(engine: PrivateEngine, *ids: str) -> dict[str, dict[str, Any]]:
    answer = openenv_trl("ps", "--json", "--docker-host", engine.host)
    assert answer.returncode == 0, answer.stderr
    return {each["name"]: each for each in json.loads(answer.stdout)["things"] if each["owner"]["id"] in ids}


def test_ps_tells_of_each_thing_whose_it_is_and_whether_its_owner_lives(engine, run, dead, alive):
    elsewhere = replace(dead, id=uuid.uuid4().hex, host="cluster-7", place="elsewhere.0.1")
    for name, owner in (("of-mine", alive), ("of-dead", dead), ("of-others", elsewhere)):
        run(owner.labels(name, 60.0))
    found = listed(engine, alive.id, dead.id, elsewhere.id)
    states = {name: each["owner"]["state"] for name, each in found.items()}
    assert states == {"of-mine": "alive", "of-dead": "dead", "of-others": "elsewhere"}
    mine = found["of-mine"]
    assert (mine["kind"], mine["state"], mine["owner"]["pid"]) == ("container", "running", os.getpid())
    assert mine["lease_s"] == 60.0
    assert 0 <= mine["age_s"] < 3600
    table = openenv_trl("ps", "--docker-host", engine.host).stdout
    assert f"{os.getpid()}@{this_owner().host} (alive)" in table
    assert f"{dead.pid}@cluster-7 (on another host)" in table


def test_prune_removes_containers_networks_and_volumes_of_dead_owners_only(engine, run, there, dead):
    labels = dead.labels("left")
    running, created = run(labels, "--volume", "/data"), run(labels, command="create")
    written = [word for label in labels.items() for word in ("--label", "=".join(label))]
    engine.docker("network", "create", "--internal", *written, f"net-{dead.id}")
    engine.docker("network", "connect", f"net-{dead.id}", running)
    engine.docker("volume", "create", *written, f"volume-{dead.id}")
    living, foreign = run(this_owner().labels("living")), run({"openenv-trl.name": "not-by-us", "a": "b"})
    elsewhere = run(replace(dead, id=uuid.uuid4().hex, host="cluster-7", place="elsewhere.0.1").labels("elsewhere"))
    volumes = set(engine.docker("volume", "ls", "--quiet").stdout.split())
    assert len(volumes) == 2

    before = openenv_trl("prune", "--dry-run", "--docker-host", engine.host)
    assert "would be removed" in before.stdout
    assert before.stdout.count(dead.id[:12]) == 4
    assert there(running)

    pruned = openenv_trl("prune", "--docker-host", engine.host)
    assert pruned.returncode == 0, pruned.stderr
    assert pruned.stdout.count(f"{dead.pid}@{dead.host} (dead)") == 4
    assert not there(running)
    assert not there(created)
    assert engine.docker("volume", "ls", "--quiet").stdout == ""
    assert f"net-{dead.id}" not in engine.docker("network", "ls").stdout
    assert all(map(there, (living, foreign, elsewhere)))


def test_prune_of_living_owners_has_to_be_meant(engine, run, there, alive):
    living, foreign = run(alive.labels("living")), run({})
    for option in (("--all",), ("--owner", alive.id[:8])):
        refused = openenv_trl("prune", *option, "--docker-host", engine.host)
        assert refused.returncode != 0
        assert "Add --yes" in refused.stderr
        assert there(living)
    assert openenv_trl("prune", "--owner", alive.id[:8], "--yes", "--docker-host", engine.host).returncode == 0
    assert not there(living)
    assert there(foreign)


def test_prune_of_an_owner_that_there_is_not_says_so(engine):
    pruned = openenv_trl("prune", "--owner", "nobody", "--docker-host", engine.host)
    assert pruned.returncode == 0
    assert pruned.stdout.startswith("There is no owner whose id begins with 'nobody'. `openenv-trl ps` lists")


def test_prune_leaves_what_is_younger_than_asked(engine, run, there, dead):
    young = run(dead.labels("young"))
    kept = openenv_trl("prune", "--older-than", "1d", "--docker-host", engine.host)
    assert kept.returncode == 0
    assert there(young)
    assert openenv_trl("prune", "--older-than", "0.1s", "--docker-host", engine.host).returncode == 0
    assert not there(young)
    wrong = openenv_trl("prune", "--older-than", "soon")
    assert wrong.returncode != 0
    assert "'soon' is no duration" in wrong.stderr


def living_of_group(group: int) -> list[psutil.Process]:
    """The processes of a group that have not ended; one that has may wait for whoever collects it."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def test_processes_of_a_dead_owner_are_listed_and_ended(dead):
    code = "import signal, subprocess, sys; signal.signal(15, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    parent = f"import subprocess, sys, signal; subprocess.Popen([sys.executable, '-c', {code!r}]); signal.pause()"
    with subprocess.Popen(
        [sys.executable, "-c", parent],
        env={**os.environ, **dead.variables()},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as started:
        try:
            assert started.stdout is not None
            started.stdout.readline()
            things = json.loads(openenv_trl("ps", "--json").stdout)["things"]
            (mine,) = [each for each in things if each["owner"]["id"] == dead.id]
            assert (mine["kind"], mine["id"], mine["owner"]["state"]) == ("process", str(started.pid), "dead")
            assert openenv_trl("prune", "--owner", dead.id).returncode == 0
            assert started.wait(60) == -signal.SIGTERM
            assert living_of_group(started.pid) == []
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)


def test_an_engine_that_is_not_there_is_told_of_in_one_line_and_the_rest_is_listed(tmp_path):
    nowhere = f"unix://{tmp_path}/no.sock"
    answer = openenv_trl("ps", "--docker-host", nowhere)
    assert answer.returncode == 0
    (line,) = answer.stderr.splitlines()
    assert line.startswith(f"Docker at {nowhere}: not listed. No Docker engine answers")
    assert openenv_trl("prune", "--dry-run", "--docker-host", nowhere).returncode == 0
