"""No orphan, ever: what an owner has is gone soon after its death, however it dies and whoever dies with it."""

from __future__ import annotations

import os
import signal

import pytest

from tests.providers.engines import docker

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # an image is built first


def test_an_owner_killed_with_its_whole_group_leaves_nothing_on_the_engine(own, plain):
    owner = own({**plain, "replicas": 2, "network": "internal"})
    owner.read("ready")
    assert {each.split()[0] for each in owner.left()} == {"ps", "network"}
    os.killpg(owner.process.pid, signal.SIGKILL)
    owner.wait_nothing_left()


def test_an_owner_killed_while_it_starts_leaves_nothing(own, plain, wait_until):
    owner = own({**plain, "replicas": 3})
    wait_until(owner.left, "nothing was started")
    owner.kill()
    owner.wait_nothing_left()


def test_an_owner_ended_by_sigterm_leaves_nothing(own, plain):
    owner = own(plain)
    owner.read("ready")
    owner.kill(signal.SIGTERM)
    owner.wait_nothing_left()


def test_an_owner_that_stops_in_order_leaves_no_reaper(own, plain, wait_until):
    owner = own(plain, "stop")
    owner.read("stopped")
    assert owner.process.wait() == 0
    assert owner.left() == []
    wait_until(lambda: not owner.reapers(), "the reaper lives on")


def test_one_reaper_serves_the_whole_life_of_an_owner_and_leaves_its_process_tree(own, plain):
    owner = own({**plain, "replicas": 2})
    owner.read("ready")
    (reaper,) = owner.reapers()
    assert reaper.ppid() != owner.process.pid
    assert os.getsid(reaper.pid) != os.getsid(owner.process.pid)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        reaper.send_signal(number)
    owner.kill()
    owner.wait_nothing_left()


def test_a_container_ends_by_its_lease_when_owner_and_reaper_are_killed(own, plain, leased_image):
    owner = own({"type": "docker", "image": leased_image, "name": "leased", "lease_s": 3.0})
    owner.read("ready")
    owner.kill_with_reaper()
    owner.wait_nothing_left()


def test_a_container_ends_by_its_lease_when_its_owner_stands_still(own, leased_image):
    owner = own({"type": "docker", "image": leased_image, "name": "leased", "lease_s": 3.0})
    owner.read("ready")
    owner.kill(signal.SIGSTOP)
    owner.wait_nothing_left()


WITH_THE_CONTAINERS_OWN_TOKEN = """
import pathlib, urllib.error, urllib.request
environment = dict(each.split("=", 1) for each in pathlib.Path("/proc/1/environ").read_text().split(chr(0)) if each)
headers = {"X-OpenEnv-Lease": environment["OPENENV_TRL_LEASE_TOKEN"]}
request = urllib.request.Request("http://127.0.0.1:8000/lease", data=b"", headers=headers)
try:
    print(urllib.request.urlopen(request, timeout=30).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_what_a_container_can_read_of_its_lease_does_not_renew_it_once_its_owner_has(own, leased_image, wait_until):
    owner = own({"type": "docker", "image": leased_image, "name": "leased", "lease_s": 12.0})
    owner.read("ready")
    (container,) = [each.split()[1] for each in owner.left() if each.startswith("ps")]

    def refused() -> bool:
        run = docker("exec", container, "python", "-c", WITH_THE_CONTAINERS_OWN_TOKEN, check=False)
        return run.stdout.strip() == "403"

    wait_until(refused, "the token of the environment renews the lease for ever")
    owner.kill_with_reaper()
    owner.wait_nothing_left()


def test_what_outlived_an_owner_and_its_reaper_goes_when_another_owner_has_started(own, plain):
    owner = own({**plain, "network": "internal"})
    owner.read("ready")
    owner.kill_with_reaper()
    assert owner.left()
    another = own(plain)
    another.read("ready")
    owner.wait_nothing_left()
    assert another.left()


def test_an_owner_killed_leaves_nothing_in_a_swarm(own, plain, swarm):
    owner = own({**plain, "type": "swarm", "replicas": 2, "docker_host": swarm.host})
    owner.read("ready")
    assert [each for each in owner.left() if each.startswith("service")]
    owner.kill()
    owner.wait_nothing_left()
    assert swarm.docker("ps", "--all", "--quiet").stdout == ""
