"""What can go wrong with an engine, an image or a setting says what to change, and leaves nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from openenv_trl.errors import ConfigurationError, OpenEnvError, ProviderError, ServerStartError
from openenv_trl.providers.docker import DockerSpec, LocalDockerProvider
from openenv_trl.providers.docker.address import EngineAddress
from openenv_trl.providers.docker.connection import EngineConnection
from openenv_trl.providers.docker.failures import network_refused, refused, unreachable_from_here
from openenv_trl.providers.docker.images import nearest
from openenv_trl.providers.readiness import listening_elsewhere
from openenv_trl.providers.specs import make_provider, read_spec
from openenv_trl.providers.swarm import DockerSwarmProvider
from tests.providers.docker.conftest import SERVE
from tests.providers.engines import docker, leave_out, require_engine
from tests.providers.patience import TRIES_S

engine = pytest.mark.docker


def failure(provider: LocalDockerProvider, kind: type[OpenEnvError] = ServerStartError) -> str:
    with pytest.raises(OpenEnvError) as caught:
        provider.start_sync()
    assert type(caught.value) is kind
    shown = "".join(traceback.format_exception(caught.value))
    assert "aiodocker" not in shown.replace("the package aiodocker", "")
    assert "another exception" not in shown
    assert "direct cause" not in shown
    assert provider.replicas == []
    return str(caught.value)


def test_no_engine_at_the_named_place(tmp_path: Path) -> None:
    message = failure(LocalDockerProvider(image="echo-env", docker_host=f"unix://{tmp_path}/none.sock"), ProviderError)
    assert f"No Docker engine answers at unix://{tmp_path}/none.sock" in message
    assert "Start Docker" in message
    assert "DOCKER_HOST" in message


def test_no_engine_where_docker_host_points(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{closed.getsockname()[1]}")
        assert "Connect" in failure(LocalDockerProvider(image="echo-env"), ProviderError)


def test_what_answers_is_no_engine(tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0", "--directory", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        text=True,
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().split("port ")[1].split()[0]
        message = failure(LocalDockerProvider(image="echo-env", docker_host=f"tcp://127.0.0.1:{port}"), ProviderError)
        assert f"What answers at tcp://127.0.0.1:{port} is no Docker engine" in message
    finally:
        server.kill()
        server.wait()


@engine
def test_no_permission_to_use_the_engine() -> None:
    require_engine()
    if os.geteuid() != 0:
        leave_out("Only root can become somebody without permission.")
    code = """
import os, aiodocker, anyio, anyio.to_thread, anyio._backends._asyncio
from openenv_trl.providers.docker.connection import open_engine
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    anyio.run(open_engine)
except Exception as error:
    print(type(error).__name__, error)
"""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DOCKER_")}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert said.stdout.startswith("ProviderError No permission to use the Docker engine at unix:///"), said
    assert "sudo usermod -aG docker $USER" in said.stdout
    assert "rootless" in said.stdout


@engine
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"image": "no-such-env:1", "pull": "never"}, "with pull='never' it is not pulled"),
        # Nothing listens there: as if the registry could not be reached.
        ({"image": "127.0.0.1:9/no-such-env:1"}, "it could not be pulled ("),
        ({"image": "127.0.0.1:9/no-such-env:1", "pull": "always"}, "it could not be pulled ("),
    ],
)
def test_a_missing_image_says_what_to_build_or_pull(fields: dict[str, str], why: str) -> None:
    require_engine()
    message = failure(LocalDockerProvider(**fields))
    assert f"has no image {fields['image']}, and {why}" in message
    assert f"`docker build -f FOLDER/server/Dockerfile -t {fields['image']} .`" in message
    assert "`make images`" in message
    assert f"`docker pull {fields['image']}`" in message


@engine
@pytest.mark.parametrize("pull", ["missing", "never"])
def test_a_missing_image_names_one_that_the_engine_has(image: str, pull: str) -> None:
    message = failure(LocalDockerProvider(image=image.replace("plain-env", "plain_env"), pull=pull))
    assert f"Is '{image}' meant?" in message


def test_the_nearest_image_is_one_with_a_name_much_like_it() -> None:
    tags = ["python:3.11-slim", "echo-env:latest", "registry.example.org/games/coding-env:4"]
    assert nearest("echo_env", tags) == nearest("eco-env:latest", tags) == nearest("echo-env:12.1", tags) == tags[1]
    assert nearest("coding-env:3", tags) == tags[2]
    assert nearest("textarena", tags) == ""


@engine
def test_a_name_that_no_image_can_have() -> None:
    require_engine()
    assert "echo env" in failure(LocalDockerProvider(image="echo env"))


@engine
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_server_that_exits_at_once_shows_its_last_lines(image: str, replicas: int) -> None:
    message = failure(LocalDockerProvider(image=image, command=[*SERVE, "--crash"], replicas=replicas))
    assert "ended before it was ready: exit code 3. It wrote:" in message
    assert "no such deck" in message


@engine
def test_a_program_that_ends_before_anyone_looks_shows_its_last_lines(image: str) -> None:
    message = failure(LocalDockerProvider(image=image, command=["sh", "-c", "echo the shoe is empty; exit 4"]))
    assert "ended before it was ready: exit code 4. It wrote:\nthe shoe is empty" in message


@engine
def test_a_server_that_never_becomes_healthy_shows_its_last_lines(image: str) -> None:
    for seconds in TRIES_S:
        message = failure(LocalDockerProvider(image=image, command=[*SERVE, "--never-ready"], ready_timeout_s=seconds))
        assert f"was not ready within {seconds:g} s: GET http://127.0.0.1:" in message
        if "503" in message:  # else the machine was too slow for it to answer
            break
    assert "503" in message
    assert "Raise ready_timeout_s" in message
    assert "the cards are shuffled" in message


@engine
def test_a_server_that_listens_on_another_port_says_which_to_set(image: str) -> None:
    says = "echo 'INFO: Uvicorn running on http://0.0.0.0:8000'; exec python3 /server.py"
    for seconds in TRIES_S:
        provider = LocalDockerProvider(image=image, command=["sh", "-c", says], port=9000, ready_timeout_s=seconds)
        message = failure(provider)
        if "Uvicorn" in message:  # else the machine was too slow for it to say so
            break
    assert "by its log the server listens on port 8000, and port=9000: set port=8000" in message
    assert "EndOfStream" not in message


@pytest.mark.parametrize(
    ("log", "hint"),
    [
        ("loading\n12:00 Serving on http://0.0.0.0:8001\n", "set port=8001"),
        (
            " * Running on http://127.0.0.1:8000 (Press CTRL+C)",
            "listens on 127.0.0.1, reached inside its container only",
        ),
        ("Listening at: http://[::1]:8000 (1)", "have it listen on 0.0.0.0"),
        ("Serving on http://0.0.0.0:8000", ""),
        ("asking http://hub:443 for weights", ""),
    ],
)
def test_where_a_server_listens_is_read_from_its_log(log: str, hint: str) -> None:
    told = listening_elsewhere(8000, log)
    assert hint in told
    assert bool(told) is bool(hint)


@engine
def test_a_port_that_another_program_has(image: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = failure(LocalDockerProvider(image=image, published_port=port))
    assert f"port {port} of 127.0.0.1 is taken by another container or program" in message
    assert "Set published_port to a free one, or leave it out" in message


@engine
def test_a_port_that_another_container_has(image: str, running_container: Callable[..., str]) -> None:
    other = running_container("--publish", "127.0.0.1:0:8000")
    port = int(docker("port", other, "8000").stdout.rpartition(":")[2])
    assert f"port {port} of 127.0.0.1 is taken" in failure(LocalDockerProvider(image=image, published_port=port))


@engine
@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"runtime": "moonsc"}, "the engine has no runtime 'moonsc'"),
        ({"command": ["/no/such/program"]}, "nothing in the image"),
        ({"user": "croupier"}, "has no user 'croupier'. Give user as numbers"),
        ({"host": "203.0.113.7"}, "host='203.0.113.7' is no address of the engine's machine"),
        ({"cpus": 4096}, "cannot give cpus=4096. Change cpus. "),
        ({"gpus": "all"}, "the engine can give no GPUs"),
    ],
)
def test_what_the_engine_refuses_says_which_field_to_change(image: str, fields: dict[str, object], advice: str) -> None:
    message = failure(LocalDockerProvider(image=image, **fields))
    assert advice in message or "exit code 127" in message  # docker-init finds out itself that there is no program
    assert "The engine said:" in message or "No such file" in message


def test_other_refusals_are_passed_on_in_the_engines_words() -> None:
    spec = DockerSpec(image="echo-env")
    assert "The engine said: the moon is full" in str(refused(spec, "echo-env-0", "the moon is full\n"))
    assert "the moon is full" in str(network_refused("the moon is full"))
    assert "docker network prune" in str(network_refused("could not find an available IPv4 address pool"))


@pytest.mark.parametrize(
    ("url", "platform", "fields", "advice"),
    [
        ("tcp://gpu-box:2376", "", {}, "host to an address of gpu-box"),
        ("ssh://me@gpu-box", "", {"network": "internal"}, "set network='open'"),
        ("unix:///var/run/docker.sock", "Docker Desktop 4.30", {"network": "internal"}, "Docker Desktop's virtual"),
        ("tcp://gpu-box:2376", "", {"host": "0.0.0.0"}, ""),
        ("unix:///var/run/docker.sock", "Docker Desktop 4.30", {}, ""),
        ("unix:///var/run/docker.sock", "Docker Engine - Community", {"network": "internal"}, ""),
    ],
)
def test_servers_that_could_not_be_reached_from_here_are_not_started(
    url: str, platform: str, fields: dict[str, str], advice: str
) -> None:
    connection = EngineConnection(None, None, EngineAddress(url))
    connection.version = {"Platform": {"Name": platform}}
    wrong = unreachable_from_here(DockerSpec.model_validate({"image": "echo-env", **fields}), connection)
    if advice:
        assert isinstance(wrong, ConfigurationError)
        assert advice in str(wrong)
    else:
        assert wrong is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"replica": 2}, r"no field 'replica' \(is 'replicas' meant\?\)"),
        ({"memory": "2 gigs"}, "is no size"),
        ({"replicas": 2, "published_port": 8000}, "leave published_port out"),
        ({"network": "internal", "published_port": 8000}, "nothing is published"),
        ({"pull": "sometimes"}, "'missing', 'never' or 'always'"),
        ({"gpus": "some"}, "gpus"),
    ],
)
def test_a_setting_that_cannot_work_is_told_before_anything_is_started(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        LocalDockerProvider(image="echo-env", **fields)
    assert "pydantic" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(ConfigurationError, match=message):
        read_spec({"type": "docker", "image": "echo-env", **fields})


def test_a_provider_with_nothing_to_run_says_so() -> None:
    with pytest.raises(ConfigurationError, match="give it a DockerSpec, or an image, such as image='echo-env:latest'"):
        LocalDockerProvider().start_sync()


def test_a_text_in_place_of_a_spec_is_the_image() -> None:
    assert LocalDockerProvider("echo-env", memory="1g").spec == DockerSpec(image="echo-env", memory=1024**3)
    assert DockerSwarmProvider("echo-env").spec.image == "echo-env"
    with pytest.raises(ConfigurationError, match="named twice"):
        LocalDockerProvider("echo-env", image="coding-env")


@pytest.mark.parametrize("kind", ["docker", "swarm"])
def test_a_settings_file_can_name_the_engine_and_the_constructor_wins(kind: str, tmp_path: Path) -> None:
    settings = {"type": kind, "image": "echo-env", "docker_host": f"unix://{tmp_path}/file.sock"}
    for provider, there in (
        (make_provider(settings), "file"),
        (make_provider(settings, docker_host=f"unix://{tmp_path}/argument.sock"), "argument"),
    ):
        with pytest.raises(ProviderError, match=f"No Docker engine answers at unix://{tmp_path}/{there}.sock"):
            provider.start_sync()


def test_a_settings_file_can_name_it() -> None:
    provider = make_provider({"type": "docker", "image": "echo-env:latest", "memory": "2g", "env_vars": {"DECKS": 6}})
    assert isinstance(provider, LocalDockerProvider)
    assert provider.spec == DockerSpec(image="echo-env:latest", memory=2 * 1024**3, env_vars={"DECKS": "6"})
