"""A sweep removes all that one owner has on an engine, also what appears late, and nothing of anybody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import anyio
import anyio.to_thread
import psutil
import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.owner import this_owner
from openenv_trl.providers.ownership.docker_engine import DockerInventory
from openenv_trl.providers.ownership.docker_place import docker_place
from openenv_trl.providers.ownership.guard import Guard
from openenv_trl.providers.ownership.reaper import Places
from openenv_trl.providers.ownership.sweep import inventory_of, sweep
from openenv_trl.providers.ownership.things import Thing
from tests.providers.engines import PrivateEngine
from tests.providers.ownership.conftest import PLAIN_IMAGE

pytestmark = [pytest.mark.docker, pytest.mark.anyio, pytest.mark.timeout(600)]

OWNER = "0123456789abcdef"


@pytest.fixture
def create(swarm: PrivateEngine) -> Iterator[Callable[[str], str]]:
    """Makes a container of an owner's that is never started."""
    names: list[str] = []

    def make(owner: str) -> str:
        name = f"made-{uuid.uuid4().hex[:8]}"
        label = f"openenv-trl.owner={owner}" if owner else "a=b"
        swarm.docker("create", "--name", name, "--label", label, "--volume", "/data", PLAIN_IMAGE, "sleep", "1000")
        names.append(name)
        return name

    yield make
    swarm.docker("rm", "--force", "--volumes", *names, check=False)


def names(engine: PrivateEngine) -> set[str]:
    return set(engine.docker("ps", "--all", "--format", "{{.Names}}").stdout.split())


async def test_what_an_engine_makes_after_the_first_look_is_removed_too(swarm, create):
    early, foreign, others = create(OWNER), create(""), create("another")
    late: list[str] = []

    class BusyInventory(DockerInventory):
        """Of an engine that is still making a container, as it does where its owner was killed meanwhile."""

        async def list(self, owner_id: str | None = None) -> list[Thing]:
            found = await super().list(owner_id)
            if not late:
                late.append(await anyio.to_thread.run_sync(create, OWNER))
            return found

    assert await sweep(OWNER, lambda: BusyInventory(swarm.host), quiet_s=1.0) == 2
    assert not {early, *late} & names(swarm)
    assert {foreign, others} <= names(swarm)


async def test_an_engine_that_is_away_is_swept_when_it_is_back(swarm, create):
    left = create(OWNER)
    await anyio.to_thread.run_sync(swarm.stop, signal.SIGKILL)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sweep, OWNER, lambda: DockerInventory(swarm.host), 1.0)
        await anyio.sleep(0.5)
        await anyio.to_thread.run_sync(swarm.start)
    assert left not in names(swarm)


async def test_a_volume_in_use_and_a_network_with_containers_go_with_what_uses_them(swarm, create):
    label = ("--label", f"openenv-trl.owner={OWNER}")
    swarm.docker("network", "create", "--driver", "bridge", "--internal", *label, "of-owner")
    swarm.docker("volume", "create", *label, "of-owner")
    mount = ("--volume", "of-owner:/mine", "--network", "of-owner")
    swarm.docker("run", "--detach", *label, *mount, PLAIN_IMAGE, "sleep", "1000")
    assert await sweep(OWNER, lambda: DockerInventory(swarm.host), quiet_s=0.0) == 3
    async with DockerInventory(swarm.host) as inventory:
        assert await inventory.list(OWNER) == []
    assert "of-owner" not in swarm.docker("network", "ls").stdout + swarm.docker("volume", "ls").stdout


async def test_a_users_own_container_from_an_image_made_of_one_of_ours_is_left_alone(swarm):
    named, bare = (f"ours-{uuid.uuid4().hex[:8]}" for _ in range(2))
    label = ("--label", f"openenv-trl.owner={OWNER}")
    swarm.docker("create", "--name", named, *label, "--label", f"openenv-trl.thing={named}", PLAIN_IMAGE, "true")
    swarm.docker("create", "--name", bare, *label, PLAIN_IMAGE, "true")
    users: set[str] = set()
    try:
        for ours in (named, bare):
            swarm.docker("commit", ours, f"{ours}:mine")
            swarm.docker("create", "--name", f"users-{ours}", f"{ours}:mine", "true")
            users.add(f"users-{ours}")
        assert await sweep(OWNER, lambda: DockerInventory(swarm.host), quiet_s=0.0) == 2
        assert users <= names(swarm)
        assert not names(swarm) & {named, bare}
    finally:
        swarm.docker("rm", "--force", *users, check=False)
        swarm.docker("rmi", f"{named}:mine", f"{bare}:mine", check=False)


async def test_what_providers_start_is_told_by_its_name(own, plain, swarm):
    for type_ in ("docker", "swarm"):
        owner = own({**plain, "type": type_, "docker_host": swarm.host})
        owner.read("ready")
        async with DockerInventory(swarm.host) as inventory:
            found = {thing.kind for thing in await inventory.list(owner.id)}
        assert "container" in found, type_
        owner.kill()
        await anyio.to_thread.run_sync(owner.wait_nothing_left)


async def test_without_the_engines_package_the_sweep_says_so_and_ends(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="aiodocker"):
        await sweep(OWNER, DockerInventory)


def test_an_engine_that_docker_host_named_later_is_swept_too(swarm, wait_until):
    script = """if True:
        import os, sys, anyio
        from openenv_trl.providers.docker.provider import LocalDockerProvider
        from openenv_trl.providers.owner import this_owner
        from openenv_trl.providers.ownership.guard import Guard

        async def main():
            Guard({"type": "docker", "docker_host": "unix:///nowhere.sock"})  # the reaper starts before it is set
            os.environ["DOCKER_HOST"] = sys.argv[1]
            fields = dict(image=sys.argv[2], name="late", command=["python", "-m", "http.server", "8000"])
            await LocalDockerProvider(**fields, health_path="/").start()
            os.write(1, this_owner().id.encode())
            os._exit(9)

        anyio.run(main)
    """
    environment = {key: value for key, value in os.environ.items() if key != "DOCKER_HOST"}
    run = subprocess.run(
        [sys.executable, "-c", script, swarm.host, PLAIN_IMAGE], env=environment, stdout=subprocess.PIPE, check=False
    )
    assert run.returncode == 9
    label = f"label=openenv-trl.owner={run.stdout.decode()}"
    wait_until(lambda: not swarm.docker("ps", "--all", "--quiet", "--filter", label).stdout, "a container is left")
    for process in psutil.process_iter(["cmdline"]):
        if run.stdout.decode() in (process.info["cmdline"] or ()):
            process.kill()  # it would wait for the first engine


def test_a_place_says_where_the_engine_is_also_when_the_settings_have_changed():
    named = docker_place("docker", None, {"DOCKER_HOST": "unix:///one.sock"})
    assert named["docker_host"] == "unix:///one.sock"
    assert (
        docker_place("swarm", "tcp://two:2375", {"DOCKER_HOST": "unix:///one.sock"})["docker_host"] == "tcp://two:2375"
    )
    wrong = {"DOCKER_HOST": "moon"}
    assert docker_place("docker", None, wrong) == {"type": "docker", "docker_host": None}


def test_a_place_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="'moon'"):
        inventory_of({"type": "moon"})


def test_the_reaper_knows_the_places_that_were_not_left_in_order():
    places = Places()
    lines = b'{"key": 1, "place": {"type": "docker"}}\n{"key": 2, "place": {"type": "swarm"}}\n{"key": 1}\n'
    for number in range(len(lines)):
        places.feed(lines[number : number + 1])
    assert places.left() == [{"type": "swarm"}]
    places.feed(b'{"key": 3, "place": {"type": "swarm"}}\n{"key": 2}\n{"ke')
    assert places.left() == [{"type": "swarm"}]
    places.feed(b'y": 3}\n')
    assert places.left() == []


def test_a_process_that_guards_two_places_has_one_reaper_which_its_forked_copy_leaves_alone():
    first, second = (Guard({"type": "docker", "docker_host": None}) for _ in range(2))
    assert len(reapers()) == 1
    child = os.fork()
    if child == 0:
        first.release()  # of a place that is not its own: nothing is said
        os._exit(0)
    os.waitpid(child, 0)
    assert len(reapers()) == 1
    first.release()
    second.release()


def reapers() -> list[psutil.Process]:
    """Those of this process that wait; one that has ended may have nobody who collects it."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if this_owner().id in words and any(word.endswith("reaper.py") for word in words):
            found.append(process)
    return found


def test_a_killed_reaper_is_replaced_by_one_that_knows_all_places(wait_until):
    guards = [Guard({"type": "docker", "docker_host": f"unix:///nowhere/{number}.sock"}) for number in range(2)]
    (first,) = reapers()
    first.kill()
    wait_until(lambda: [each for each in reapers() if each.pid != first.pid], "no other reaper has come")
    guards.append(Guard({"type": "docker", "docker_host": "unix:///nowhere/2.sock"}))
    assert len(reapers()) == 1
    for guard in guards:
        guard.release()


def test_an_owners_reaper_that_was_killed_does_not_keep_things_alive(own, plain, wait_until):
    owner = own(plain)
    owner.read("ready")
    (reaper,) = owner.reapers()
    reaper.kill()
    wait_until(lambda: [each for each in owner.reapers() if each.pid != reaper.pid], "no other reaper has come")
    owner.kill()
    owner.wait_nothing_left()
