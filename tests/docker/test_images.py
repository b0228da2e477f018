"""Every environment's image builds, plays an episode hardened and through a provider, is slim, and stops at once.

They need a real Docker engine, and are left out where none answers. OPENENV_TRL_REQUIRE_DOCKER=1 makes that a failure.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from openenv_trl.client import GenericEnvClient, fetch_health
from openenv_trl.providers.docker import LocalDockerProvider

STOP_WITHIN_S = 8.0  # Docker kills after 10

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.docker,
    pytest.mark.timeout(600),
]


async def test_an_episode_is_played_with_a_read_only_root_and_no_capability(
    docker: Any, image: Any, container: str
) -> None:
    assert (await fetch_health(docker.address(container)))["status"] == "healthy"
    async with GenericEnvClient(docker.address(container)) as env:
        await image.play(env)


async def test_an_episode_is_played_with_the_docker_provider(image: Any) -> None:
    async with LocalDockerProvider(image=image.tag, replicas=2, ready_timeout_s=240) as servers:
        for base_url in servers.base_urls:
            async with GenericEnvClient(base_url) as env:
                await image.play(env)


def test_the_health_check_of_the_image_passes_inside_it_while_it_serves(docker: Any, container: str) -> None:
    check = docker.inspect(container)["Config"]["Healthcheck"]["Test"]
    assert check[0] == "CMD"
    docker("exec", container, *check[1:])
    broken = [argument.replace("8000", "8001") for argument in check[1:]]
    assert docker("exec", container, *broken, check=False).returncode != 0


def test_the_server_does_not_run_as_root_and_is_process_one(docker: Any, container: str) -> None:
    assert docker.inspect(container)["Config"]["User"] == "1000:1000"
    assert docker("exec", container, "id", "-u").stdout.strip() == "1000"
    command = docker("exec", container, "cat", "/proc/1/cmdline").stdout.split("\0")
    assert command[1:3] == ["-m", "openenv_trl.server"]


def test_the_image_holds_what_serving_needs_and_no_more(docker: Any, container: str) -> None:
    for compiler in ("cc", "gcc", "g++", "make"):
        assert docker("exec", container, "sh", "-c", f"command -v {compiler}", check=False).returncode != 0, compiler
    left = ("/src", "/requirements", "/dependencies.py", "/root/.cache", "/tmp/.cache", "/app/env/tests")
    assert docker("exec", container, "sh", "-c", f"ls -d {' '.join(left)}", check=False).stdout == ""
    code = "import importlib.metadata as m, json; print(json.dumps([d.name for d in m.distributions()]))"
    installed = {name.lower() for name in json.loads(docker("exec", container, "python", "-c", code).stdout)}
    assert "openenv-trl" in installed
    assert not {"torch", "trl", "transformers", "pip", "setuptools", "wheel"} & installed


def test_a_start_compiles_nothing(docker: Any, container: str) -> None:
    code = "import openenv_trl.server.serving; from openenv_trl.server.loading import load_app; load_app('.')"
    told = docker("exec", container, "python", "-v", "-c", code).stderr
    loaded = re.findall(r"^# code object from '?(.+?)'?$", told, re.MULTILINE)
    assert len(loaded) > 100
    assert [path for path in loaded if not path.endswith(".pyc")] == []


def test_labels_say_which_environment_it_is(docker: Any, image: Any) -> None:
    labels = docker.inspect(image.tag)["Config"]["Labels"]
    assert labels["openenv-trl.environment"] == labels["org.opencontainers.image.title"] == image.environment
    assert labels["org.opencontainers.image.base.name"] == "python:3.11-slim"
    assert labels["org.opencontainers.image.version"] == "0.1.0"


def test_the_app_is_found_under_the_path_of_cloud_providers(docker: Any, container: str) -> None:
    code = "from server.app import app; print(app.title)"
    docker("exec", "--workdir", "/app/env", container, "python", "-c", code)
    assert "app: server.app:app" in docker("exec", container, "cat", "/app/env/openenv.yaml").stdout


def test_it_stops_in_time_when_told_to_also_with_an_episode_running(docker: Any, image: Any) -> None:
    took: list[float] = []
    while not took or took[-1] >= STOP_WITHIN_S:
        assert len(took) < 3, took  # one slow stop may be the machine's, which has other things to do
        with docker.running(image.tag) as name:
            client = GenericEnvClient(docker.address(name)).sync()
            client.connect()
            client.reset()
            started = time.monotonic()
            docker("stop", "--time", "60", name)
            took.append(time.monotonic() - started)
            assert docker.inspect(name)["State"]["ExitCode"] == 0
            client.close()
