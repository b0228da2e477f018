"""How a server is confined: what it may do, how much it may use, whom it reaches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from openenv_trl.providers.docker import DockerSpec, LocalDockerProvider
from openenv_trl.providers.docker.spec import SANDBOX_DEFAULTS, SANDBOX_LABEL, with_defaults
from tests.providers.engines import docker

engine = pytest.mark.docker


def limits(provider: LocalDockerProvider) -> dict[str, Any]:
    return json.loads(docker("inspect", provider.replicas[0].id).stdout)[0]["HostConfig"]


def test_fields_that_are_given_win_over_the_images_labels() -> None:
    spec = DockerSpec(image="coding-env", memory=8 * 1024**2, read_only=False)
    filled = with_defaults(spec, {SANDBOX_LABEL: "true"})
    assert (filled.memory, filled.read_only) == (8 * 1024**2, False)
    assert (filled.network, filled.pids, filled.cpus) == ("internal", 2048, 1.0)
    assert with_defaults(spec, {SANDBOX_LABEL: "false"}).network == "open"
    assert with_defaults(spec, {}).pids == 512
    assert with_defaults(DockerSpec(image="coding-env", published_port=8000), {SANDBOX_LABEL: "1"}).network == "open"


@engine
def test_without_being_asked_a_server_has_no_capabilities_and_few_processes(
    image: str, ask: Callable[..., str]
) -> None:
    with LocalDockerProvider(image=image) as provider:
        status = dict(line.split(":\t") for line in ask(provider.base_urls[0], "read", "/proc/1/status").splitlines())
        assert {int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
        assert status["NoNewPrivs"] == "1"
        assert limits(provider)["PidsLimit"] == 512
        assert ask(provider.base_urls[0], "write", "/root/scores") == "written"


@engine
def test_the_fields_of_the_spec_reach_the_container(image: str, ask: Callable[..., str]) -> None:
    provider = LocalDockerProvider(
        image=image,
        cpus=0.5,
        memory="256m",
        pids=100,
        read_only=True,
        tmpfs="8m",
        shm_size="16m",
        user="1234:1235",
        drop_capabilities=False,
        labels={"table": 7},
    )
    with provider:
        url = provider.base_urls[0]
        given = limits(provider)
        assert (given["NanoCpus"], given["PidsLimit"], given["ShmSize"]) == (500_000_000, 100, 16 * 1024**2)
        assert given["Memory"] == given["MemorySwap"] == 256 * 1024**2
        assert given["CapDrop"] is None
        assert ask(url, "who") == "1234:1235"
        assert "Read-only file system" in ask(url, "write", "/scores")
        assert ask(url, "write", "/tmp/scores") == "written"
        assert "size=8192k" in ask(url, "read", "/proc/mounts")
        labels = json.loads(docker("inspect", provider.replicas[0].id).stdout)[0]["Config"]["Labels"]
        assert labels["table"] == "7"
        assert labels["openenv-trl.name"] == provider.replicas[0].name


@engine
def test_a_server_knows_whose_it_is_and_how_long_it_lives(image: str, ask: Callable[..., str]) -> None:
    with LocalDockerProvider(image=image, lease_s=33, env_vars={"OPENENV_TRL_OWNER": "somebody else"}) as provider:
        url = provider.base_urls[0]
        wanted = provider._lease_variables(provider.replicas[0].name)
        assert {name: ask(url, "variable", name) for name in wanted} == wanted
        labels = json.loads(docker("inspect", provider.replicas[0].id).stdout)[0]["Config"]["Labels"]
        assert labels["openenv-trl.lease-s"] == "33"


@engine
def test_an_image_labelled_as_a_sandbox_is_confined_without_being_asked(
    sandbox_image: str, ask: Callable[..., str]
) -> None:
    with LocalDockerProvider(image=sandbox_image) as provider:
        given = limits(provider)
        assert given["ReadonlyRootfs"] is True
        assert given["PidsLimit"] == SANDBOX_DEFAULTS["pids"]
        assert given["Memory"] == SANDBOX_DEFAULTS["memory"]
        assert given["NanoCpus"] == SANDBOX_DEFAULTS["cpus"] * 1e9
        assert not given["PortBindings"]
        assert not provider.base_urls[0].startswith("http://127.")
        assert "Read-only file system" in ask(provider.base_urls[0], "write", "/scores")


@engine
def test_on_an_internal_network_a_server_reaches_no_other_network_and_no_other_replica(
    image: str, ask: Callable[..., str], running_container: Callable[..., str]
) -> None:
    outside = running_container()
    address = docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", outside).stdout.strip()
    # The listener can be reached from where there is a way out: so it is the network that stops the others.
    with LocalDockerProvider(image=image) as free:
        ends = time.monotonic() + 120
        while (told := ask(free.base_urls[0], "connect", f"{address}:8000")) != "connected":
            assert time.monotonic() < ends, told
            time.sleep(0.1)  # it was started, and may not listen yet
    provider = LocalDockerProvider(image=image, network="internal", replicas=2)
    other = LocalDockerProvider(image=image, network="internal")
    with provider, other:
        first, second = (url.removeprefix("http://") for url in provider.base_urls)
        third = other.base_urls[0].removeprefix("http://")
        for beyond in (f"{address}:8000", second, third, "192.0.2.77:80"):
            assert "connected" not in ask(f"http://{first}", "connect", beyond)
        # Not by way of the engine's name server either, which would carry what is asked for out.
        assert "gaierror" in ask(f"http://{first}", "resolve", "example.com")
        hosts = docker("exec", provider.replicas[0].id, "cat", "/etc/resolv.conf").stdout
        assert "nameserver 127.0.0" in hosts
