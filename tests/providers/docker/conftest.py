"""Small images built once, and a look after every test at whether anything of it is left on the engine."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from openenv_trl.providers.owner import OWNER_LABEL, this_owner
from tests.providers.engines import docker, require_engine

HERE = Path(__file__).parent
DOCKERFILE = """
FROM python:3.11-slim
COPY container_server.py /server.py
VOLUME /data
CMD ["python3", "/server.py"]
"""
SERVE = ["python3", "/server.py"]


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image whose server answers GET /health, and that declares a volume."""
    yield from built(tmp_path_factory, "plain", DOCKERFILE)


@pytest.fixture(scope="session")
def sandbox_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same, labelled as one that runs code that nobody has read."""
    yield from built(tmp_path_factory, "sandbox", DOCKERFILE + 'LABEL openenv-trl.sandbox="true"\n')


def built(tmp_path_factory: pytest.TempPathFactory, kind: str, dockerfile: str) -> Iterator[str]:
    """An image with the server in its folder, for as long as it is wanted."""
    require_engine()
    folder = tmp_path_factory.mktemp(kind)
    (folder / "Dockerfile").write_text(dockerfile)
    (folder / "container_server.py").write_bytes((HERE / "container_server.py").read_bytes())
    name = f"{kind}-env:test-{uuid.uuid4().hex[:8]}"
    docker("build", "--quiet", "--tag", name, str(folder))
    yield name
    docker("rmi", "--force", name, check=False)


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test leaves neither containers nor networks nor volumes of this process's behind."""
    yield
    if request.node.get_closest_marker("docker") is not None:
        assert left() == []


def left(host: str | None = None) -> list[str]:
    """The containers, networks and volumes of this process's on an engine."""
    mine = f"label={OWNER_LABEL}={this_owner().id}"
    containers = docker("ps", "--all", "--quiet", "--filter", mine, host=host).stdout.split()
    networks = docker("network", "ls", "--quiet", "--filter", mine, host=host).stdout.split()
    return containers + networks + docker("volume", "ls", "--quiet", "--filter", mine, host=host).stdout.split()


@pytest.fixture
def ask() -> Callable[..., str]:
    """Has a server do something: ``ask(base_url, "connect", "172.17.0.3:8000")``."""

    def get(base_url: str, what: str, argument: str = "") -> str:
        with urlopen(f"{base_url}/{what}/{quote(argument, safe='')}", timeout=60) as answer:
            return answer.read().decode()

    return get


@pytest.fixture
def running_container(image: str) -> Iterator[Callable[..., str]]:
    """Starts a container beside the provider's; returns its id."""
    started: list[str] = []

    def start(*options: str) -> str:
        started.append(docker("run", "--detach", *options, image).stdout.strip())
        return started[-1]

    yield start
    for container in started:
        subprocess.run(["docker", "rm", "--force", "--volumes", container], capture_output=True)
