"""Volumes that an image declares are mounted as the engine itself would, and carry their owner's labels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from openenv_trl.providers.docker import DockerSpec, LocalDockerProvider
from openenv_trl.providers.docker.spec import container_config
from openenv_trl.providers.owner import this_owner
from tests.providers.docker.conftest import SERVE, built
from tests.providers.engines import docker

pytestmark = pytest.mark.anyio

DOCKERFILE = """
FROM python:3.11-slim
COPY container_server.py /server.py
VOLUME ["/a", "/a/", "/b//c/../d", "rel", "/tmp"]
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image that declares the same volume twice, and one by a relative path."""
    yield from built(tmp_path_factory, "volumes", DOCKERFILE)


@pytest.mark.parametrize(
    ("declared", "read_only", "mounted"),
    [
        (["/a", "/a/"], False, ["/a"]),
        (["//a", "/b/../a/.", "/b//c"], False, ["/a", "/b/c"]),
        (["rel", "./rel", "/"], False, []),
        (["/tmp", "/a"], True, ["/a"]),
        (["/tmp", "/a"], False, ["/tmp", "/a"]),
    ],
)
def test_a_folder_is_mounted_once_and_what_is_no_mount_is_left_to_the_engine(declared, read_only, mounted):
    spec = DockerSpec(image="some-env", read_only=read_only)
    host = container_config(spec, {}, {}, None, declared)["HostConfig"]
    assert [mount["Target"] for mount in host.get("Mounts", [])] == mounted


@pytest.mark.docker
@pytest.mark.parametrize("read_only", [False, True])
async def test_an_image_that_declares_volumes_in_odd_ways_runs_and_leaves_none(image: str, read_only: bool) -> None:
    async with LocalDockerProvider(DockerSpec(image=image, command=SERVE, read_only=read_only)) as provider:
        form = "{{range .Mounts}}{{.Destination}} {{.Name}}\n{{end}}"
        shown = docker("inspect", "--format", form, provider.replicas[0].id).stdout.split("\n")
        volumes = dict(line.split() for line in shown if line)
        assert set(volumes) - {"/tmp"} == {"/a", "/b/d", "rel"}
        for folder in ("/a", "/b/d"):
            assert this_owner().id in docker("volume", "inspect", volumes[folder]).stdout
    for name in volumes.values():
        assert docker("volume", "inspect", name, check=False).returncode != 0
