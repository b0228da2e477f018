"""What cannot run in a Swarm is said in words that tell what to change, and nothing of it is left."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError
from openenv_trl.providers.swarm import DockerSwarmProvider
from tests.providers.engines import port_for_later
from tests.providers.patience import told_in_time
from tests.providers.swarm.conftest import Swarm, told

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

Make = Callable[..., DockerSwarmProvider]


@pytest.mark.docker
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"image": "no-such-cards:1"},
            r"(?s)cards-0 was not started: the node .* has no image 'no-such-cards:1'.*"
            r"docker build .* -t no-such-cards:1.*docker push no-such-cards:1",
        ),
        (
            {"constraints": ["node.labels.gpu==yes"], "schedule_timeout_s": 0.5},
            r"found no node within 0.5 s: no suitable node \(scheduling constraints not satisfied.*"
            r"constraints=\['node.labels.gpu==yes'\]",
        ),
        (
            {"reserve_memory": "900g", "schedule_timeout_s": 0.5},
            r"no suitable node \(insufficient resources.*reserve_memory=921600 MiB free",
        ),
        ({"command": told("crash")}, r"(?s)cards-0 ended before it was ready: exit code 1.*cannot find the cards"),
        ({"user": "nobody-here"}, r"was not started on the node .*unable to find user nobody-here"),
    ],
)
async def test_what_cannot_start_says_why_and_leaves_nothing(
    swarm: Swarm, provider: Make, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ServerStartError, match=message):
        await provider(**fields).start()
    assert swarm.is_empty(), swarm.left()


@pytest.mark.docker
async def test_what_is_never_ready_says_what_it_answers_and_wrote_and_leaves_nothing(
    swarm: Swarm, provider: Make
) -> None:
    async def start(seconds: float) -> str:
        with pytest.raises(ServerStartError) as caught:
            await provider(command=told("never-ready"), ready_timeout_s=seconds).start()
        assert swarm.is_empty(), swarm.left()
        return str(caught.value)

    wanted = r"(?s)was not ready within \d+ s: GET http://127.0.0.1:\d+/health: answered.*503.*serving, told"
    assert re.search(wanted, await told_in_time(start, "503", "serving, told"))


@pytest.mark.docker
async def test_a_fixed_port_for_two_replicas_on_one_node(swarm: Swarm, provider: Make) -> None:
    port = port_for_later()
    with pytest.raises(ServerStartError, match=f"published_port={port} fits one replica a node"):
        await provider(replicas=2, published_port=port, schedule_timeout_s=1).start()
    assert swarm.is_empty(), swarm.left()


@pytest.mark.docker
def test_an_engine_in_no_swarm(swarm: Swarm) -> None:
    assert "is in no Swarm. Run `docker swarm init` there" in swarm.refusal
    assert "auto_init_swarm=True" in swarm.refusal


async def test_no_engine(tmp_path: Path) -> None:
    servers = DockerSwarmProvider(image="cards", docker_host=f"unix://{tmp_path}/docker.sock")
    with pytest.raises(ProviderError, match=r"No Docker engine answers at unix://.*docker.sock"):
        await servers.start()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"LocalNodeState": "locked"}, "run `docker swarm unlock`"),
        (
            {"LocalNodeState": "active", "RemoteManagers": [{"Addr": "10.0.0.1:2377"}]},
            r"is a worker of its Swarm.*to a manager \(the Swarm has 10.0.0.1:2377\)",
        ),
        ({"LocalNodeState": "error"}, "is in no Swarm"),
    ],
)
async def test_an_engine_that_cannot_manage(tmp_path: Path, state: dict[str, Any], message: str) -> None:
    async def info(request: web.Request) -> web.Response:
        return web.json_response({"Swarm": state})

    async def version(request: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": "1.41"})

    app = web.Application()
    app.add_routes([web.get("/v1.41/info", info), web.get("/v1.41/version", version), web.get("/version", version)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(tmp_path / "engine")).start()
        servers = DockerSwarmProvider(image="cards", docker_host=f"unix://{tmp_path}/engine")
        with pytest.raises(ProviderError, match=message):
            await servers.start()
    finally:
        await runner.cleanup()


@pytest.mark.docker
async def test_a_network_that_does_not_fit(swarm: Swarm, provider: Make) -> None:
    with pytest.raises(ProviderError, match="docker network create --driver overlay --attachable cards-net"):
        await provider(publish="network", overlay_network="cards-net").start()
    with pytest.raises(ConfigurationError, match="'bridge' is of this node only"):
        await provider(publish="network", overlay_network="bridge").start()
    swarm.docker("network", "create", "--driver", "overlay", "cards-net")
    try:
        with pytest.raises(ConfigurationError, match=r"lets servers reach the outside.*--internal cards-net"):
            await provider(publish="network", overlay_network="cards-net", network="internal").start()
    finally:
        swarm.remove_network("cards-net")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"publish": "network"}, "overlay_network has to say which"),
        ({"network": "internal"}, "Swarm publishes no port of an internal network"),
        ({"publish": "network", "overlay_network": "n", "published_port": 80}, "leave published_port out"),
        ({"one_service": True, "restart": "on-failure"}, "start again what the provider has removed"),
        ({"registry_username": "u"}, "go together"),
        ({"replica": 2}, "is 'replicas' meant"),
    ],
)
def test_fields_that_do_not_fit_together(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DockerSwarmProvider(image="cards", **fields)


@pytest.mark.docker
async def test_two_swarms_with_one_data_port(swarm: Swarm, provider: Make) -> None:
    swarm.docker("network", "create", "--driver", "overlay", "--attachable", "--internal", "crowded")
    options = swarm.inspect("crowded")[0]["Options"]
    number = options["com.docker.network.driver.overlay.vxlanid_list"]
    servers = provider(publish="network", overlay_network="crowded", network="internal")
    try:
        with (
            interface_of_another_engine(number, swarm.overlay_port),
            pytest.raises(ServerStartError, match=r"vxlan interface: file exists.*init_data_port here"),
        ):
            await servers.start()
    finally:
        swarm.remove_network("crowded")


@contextlib.contextmanager
def interface_of_another_engine(number: str, port: int) -> Iterator[None]:
    name = f"vx{port}"
    subprocess.run(["ip", "link", "add", name, "type", "vxlan", "id", number, "dstport", str(port)], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "del", name], check=True)
