"""The blackjack image builds from a checkout, serves the same hands as the environment in process, and stops at once.

It needs a real Docker engine, and is left out where none answers. OPENENV_TRL_REQUIRE_DOCKER=1 makes that a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blackjack_env.models import BlackjackAction
from blackjack_env.server.blackjack_environment import BlackjackEnvironment

from openenv_trl.client import GenericEnvClient, fetch_health

ROOT = Path(__file__).resolve().parents[2]
STOP_WITHIN_S = 8.0  # Docker kills after 10

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.docker,
    pytest.mark.timeout(600),
]


def docker(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    run = subprocess.run(["docker", *arguments], capture_output=True, text=True, cwd=ROOT)
    if check and run.returncode:
        pytest.fail(f"docker {' '.join(arguments)} failed:\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}")
    return run


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    if shutil.which("docker") is None or docker("info", check=False).returncode:
        text = "No Docker engine answers. Start one: on Debian `apt-get install docker.io`, then `dockerd &` as root."
        if os.environ.get("OPENENV_TRL_REQUIRE_DOCKER") == "1":
            pytest.fail(text)
        pytest.skip(text)
    tag = f"blackjack_env:test-{uuid.uuid4().hex[:12]}"
    docker("build", "-f", "environments/blackjack_env/server/Dockerfile", "-t", tag, ".")
    yield tag
    docker("image", "rm", "--force", tag, check=False)


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[str]:
    name = docker("run", "--detach", "--publish", "127.0.0.1:0:8000", image).stdout.strip()
    try:
        wait_until_it_serves(name)
        yield name
    finally:
        docker("rm", "--force", name, check=False)


def wait_until_it_serves(container: str) -> None:
    with subprocess.Popen(
        ["docker", "logs", "--follow", container], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as logs:
        assert logs.stdout is not None
        seen: list[str] = []
        for line in logs.stdout:
            seen.append(line)
            if "Serving on" in line:
                logs.kill()
                return
    pytest.fail(f"The container ended before it served:\n{''.join(seen)}")


def address(container: str) -> str:
    return f"http://{docker('port', container, '8000/tcp').stdout.splitlines()[0]}"


def inspect(thing: str) -> dict[str, Any]:
    return json.loads(docker("inspect", thing).stdout)[0]


async def test_a_hand_through_the_published_port_is_the_hand_in_process(container: str) -> None:
    assert (await fetch_health(address(container)))["status"] == "healthy"
    environment = BlackjackEnvironment()
    async with GenericEnvClient(address(container)) as env:
        for seed in range(10):
            expected, result = environment.reset(seed=seed, task_seed=3), await env.reset(seed=seed, task_seed=3)
            while not expected.done:
                assert result.observation == expected.model_dump(exclude={"reward", "done"})
                move = "hit" if expected.player_sum < 15 else "stand"
                expected, result = environment.step(BlackjackAction(move=move)), await env.step({"move": move})
            assert (result.observation["message"], result.reward, result.done) == (
                expected.message,
                expected.reward,
                True,
            )


def test_the_health_check_of_the_image_passes_inside_it(container: str) -> None:
    check = inspect(container)["Config"]["Healthcheck"]["Test"]
    assert check[0] == "CMD"
    docker("exec", container, *check[1:])
    broken = [argument.replace("8000", "8001") for argument in check[1:]]
    assert docker("exec", container, *broken, check=False).returncode != 0


def test_the_server_does_not_run_as_root_and_brings_no_training_stack(container: str) -> None:
    assert docker("exec", container, "id", "-u").stdout.strip() == "1000"
    installed = docker("exec", container, "python", "-m", "pip", "list", "--format=freeze").stdout.lower()
    assert "openenv-trl==" in installed.replace("_", "-")
    assert not {"torch", "trl", "transformers"} & {line.split("==")[0] for line in installed.splitlines()}


def test_the_app_is_found_under_the_path_of_cloud_providers(container: str) -> None:
    code = "import os; from server.app import app; print(os.getcwd(), app.title)"
    docker("exec", "--workdir", "/app/env", container, "python", "-c", code)


def test_it_stops_in_time_when_told_to_also_with_an_episode_running(image: str) -> None:
    name = docker("run", "--detach", "--publish", "127.0.0.1:0:8000", image).stdout.strip()
    try:
        wait_until_it_serves(name)
        client = GenericEnvClient(address(name)).sync()
        client.connect()
        client.reset(seed=1)
        started = time.monotonic()
        docker("stop", "--time", "20", name)
        assert time.monotonic() - started < STOP_WITHIN_S
        assert inspect(name)["State"]["ExitCode"] == 0
        client.close()
    finally:
        docker("rm", "--force", name, check=False)
