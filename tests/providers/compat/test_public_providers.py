"""Providers at the public package's addresses, with its calls."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from openenv_trl.client import GenericEnvClient
from openenv_trl.compat.containers.runtime.daytona_provider import DaytonaProvider
from openenv_trl.compat.containers.runtime.uv_provider import UVProvider
from openenv_trl.errors import ConfigurationError, DeadlineExceededError, ProviderError, ServerStartError
from openenv_trl.providers.container_calls import ContainerProvider, RuntimeProvider
from openenv_trl.providers.plugged import PluggedProvider

RUNTIME = "openenv_trl.compat.containers.runtime"
CONTAINERS = {"LocalDockerProvider": "docker", "DockerSwarmProvider": "swarm", "KubernetesProvider": "kubernetes"}

APP = """
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "app.py").write_text(APP)
    text = '[project]\nname = "plain"\nversion = "0"\nrequires-python = ">=3.10"\ndependencies = []\n'
    (tmp_path / "pyproject.toml").write_text(text)
    return tmp_path


@pytest.mark.parametrize("module", [RUNTIME, f"{RUNTIME}.providers", "openenv_trl.compat.env_client"])
@pytest.mark.parametrize("name", [*CONTAINERS, "ContainerProvider", "RuntimeProvider"])
def test_a_provider_is_ours_at_the_public_path(module: str, name: str) -> None:
    home = f"openenv_trl.providers.{CONTAINERS.get(name, 'container_calls')}"
    assert getattr(importlib.import_module(module), name) is getattr(importlib.import_module(home), name)


def test_each_of_them_passes_for_what_the_public_package_calls_it() -> None:
    runtime = importlib.import_module(RUNTIME)
    for name in (*CONTAINERS, "DaytonaProvider"):
        assert issubclass(getattr(runtime, name), ContainerProvider), name
    assert issubclass(runtime.UVProvider, RuntimeProvider)
    assert runtime.UVProvider is UVProvider
    assert runtime.DaytonaProvider is DaytonaProvider


def test_looking_there_imports_no_engines_client() -> None:
    code = (
        f"import sys, {RUNTIME}, {RUNTIME}.providers, {RUNTIME}.daytona_provider, {RUNTIME}.uv_provider\n"
        "print([name for name in ('aiodocker', 'kubernetes_asyncio', 'daytona') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_project_is_served_with_the_public_packages_calls(project: Path) -> None:
    provider = UVProvider(project_path=project, host="127.0.0.1", env_vars={"A": "1"})
    with pytest.raises(ProviderError, match="call start first"):
        provider.wait_for_ready()
    try:
        url = provider.start(env_vars={"B": "2"})
        provider.wait_for_ready(timeout_s=60)
        assert provider.base_url == url
        with pytest.raises(ProviderError, match="runs already"):
            provider.start()
    finally:
        provider.stop()
    provider.stop()
    assert provider.base_url is None


def test_a_project_with_the_public_packages_calls_is_a_clients_and_a_pools(project: Path) -> None:
    with pytest.raises(ServerStartError, match=r"ended with exit code \d"):
        GenericEnvClient(provider=UVProvider(project_path=project, app="server.nothing:app")).sync().connect()
    with PluggedProvider(lambda: UVProvider(project_path=project)) as servers:
        assert servers.base_urls[0].startswith("http://localhost:")


def test_what_the_public_package_gives_daytona_is_understood(tmp_path: Path) -> None:
    daytona = pytest.importorskip("daytona")
    provider = DaytonaProvider(
        image="echo-env:1",
        env_vars={"A": "1"},
        api_key="dtn",
        resources=daytona.Resources(cpu=2, memory=4, disk=8),
        cmd="serve --all",
        create_timeout=10,
        target="eu",
    )
    spec = provider.spec
    assert (spec.cpus, spec.memory, spec.disk, spec.gpus) == (2, 4 * 1024**3, 8 * 1024**3, None)
    assert (spec.command, spec.create_timeout_s, spec.target) == (["sh", "-c", "serve --all"], 10, "eu")
    (tmp_path / "Dockerfile").touch()
    assert DaytonaProvider.image_from_dockerfile(tmp_path / "Dockerfile") == f"dockerfile:{tmp_path}/Dockerfile"
    with pytest.raises(ConfigurationError, match="it has no field 'cores'"):
        DaytonaProvider(image="a", cores=2)


def test_errors_are_those_that_the_public_packages_callers_catch() -> None:
    assert issubclass(DeadlineExceededError, TimeoutError)
    assert issubclass(ConfigurationError, ValueError)
