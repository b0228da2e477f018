"""One single-node Swarm of the tests' own, and an image with a small server in it."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from openenv_trl.errors import ProviderError
from openenv_trl.providers.swarm import DockerSwarmProvider
from tests.providers.engines import PrivateEngine, docker, port_for_later, private_engine, require_engine

HERE = Path(__file__).parent
DOCKERFILE = """
FROM python:3.11-slim
COPY contained_server.py /
VOLUME /data
HEALTHCHECK --interval=1h CMD false
CMD ["python", "/contained_server.py", "plain"]
"""


def told(*words: str) -> list[str]:
    """The command of a server that is told something."""
    return ["python", "/contained_server.py", *words]


async def until(condition: Callable[[], bool], within_s: float = 120) -> None:
    """Waits for what another process brings about."""
    with anyio.fail_after(within_s):
        while True:
            if condition():
                return
            await anyio.sleep(0.05)


class Swarm:
    """The Swarm, and what is in it."""

    def __init__(self, engine: PrivateEngine, image: str) -> None:
        self.engine = engine
        self.host = engine.host
        self.image = image
        self.overlay_port = engine.overlay_port
        self.refusal = ""
        """What was said when it was to be used before it was a Swarm."""

    def docker(self, *arguments: str) -> str:
        return self.engine.docker(*arguments).stdout

    def inspect(self, *things: str) -> list[dict[str, Any]]:
        return json.loads(self.docker("inspect", *things)) if things else []

    def services(self) -> list[dict[str, Any]]:
        return self.inspect(*self.docker("service", "ls", "--quiet").split())

    def containers(self) -> list[dict[str, Any]]:
        return self.inspect(*self.docker("ps", "--all", "--quiet").split())

    def remove_network(self, name: str) -> None:
        """Removes a network once the Swarm knows that its last service has gone, which takes it a moment."""
        ends = time.monotonic() + 120
        while (run := self.engine.docker("network", "rm", name, check=False)).returncode:
            assert time.monotonic() < ends, run.stderr
            time.sleep(0.2)

    def left(self) -> str:
        """Services, containers and volumes that are there."""
        return self.docker("service", "ls") + self.docker("ps", "--all") + self.docker("volume", "ls")

    def is_empty(self) -> bool:
        return all(len(self.docker(*what, "--quiet").split()) == 0 for what in (("service", "ls"), ("ps", "-a"))) and (
            not self.docker("volume", "ls", "--quiet").split()
        )


@pytest.fixture(scope="session")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    require_engine()
    folder = tmp_path_factory.mktemp("image")
    shutil.copy(HERE / "contained_server.py", folder)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    image = f"swarm-server:test-{uuid.uuid4().hex[:12]}"
    docker("build", "--tag", image, str(folder))
    try:
        with private_engine([image]) as engine:
            made = Swarm(engine, image)
            with pytest.raises(ProviderError) as refused:
                DockerSwarmProvider(image=image, docker_host=engine.host).start_sync()
            made.refusal = str(refused.value)
            listens = f"127.0.0.1:{port_for_later()}"
            init = {"auto_init_swarm": True, "init_listen_addr": listens, "init_data_port": made.overlay_port}
            with DockerSwarmProvider(image=image, docker_host=engine.host, **init):
                pass
            yield made
    finally:
        docker("image", "rm", "--force", image, check=False)


@pytest.fixture
def provider(swarm: Swarm) -> Iterator[Callable[..., DockerSwarmProvider]]:
    """Makes providers in the Swarm; after the test nothing of them is left, and the test fails if there was."""
    made: list[DockerSwarmProvider] = []

    def make(kind: type[DockerSwarmProvider] = DockerSwarmProvider, **fields: Any) -> DockerSwarmProvider:
        fields = {"image": swarm.image, "name": "cards", "ready_timeout_s": 120, **fields}
        made.append(kind(docker_host=swarm.host, **{key: value for key, value in fields.items() if value is not None}))
        return made[-1]

    yield make
    for each in made:
        each.stop_sync()
    assert swarm.is_empty(), swarm.left()
