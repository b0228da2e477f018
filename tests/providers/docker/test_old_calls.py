"""The public package's calls, on the real provider."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from openenv_trl.errors import ConfigurationError, ProviderError
from openenv_trl.providers.container_calls import ContainerProvider
from openenv_trl.providers.docker import DockerSpec, LocalDockerProvider
from tests.providers.docker.conftest import SERVE, left
from tests.providers.engines import port_for_later

engine = pytest.mark.docker


def test_it_passes_for_a_container_provider() -> None:
    assert isinstance(LocalDockerProvider(), ContainerProvider)


@engine
def test_a_container_is_started_awaited_and_stopped_by_the_old_calls(image: str, ask: Callable[..., str]) -> None:
    port = port_for_later()
    provider = LocalDockerProvider(memory="128m", env_vars={"DECKS": "6", "SEATS": "1"})
    for _ in range(2):
        base_url = provider.start_container(image, port=port, env_vars={"SEATS": "5"}, cpus=1)
        assert base_url == f"http://127.0.0.1:{port}"
        provider.wait_for_ready(base_url, timeout_s=60)
        assert ask(base_url, "variable", "DECKS") + ask(base_url, "variable", "SEATS") == "65"
        assert provider.spec.memory == 128 * 1024**2
        assert [replica.base_url for replica in provider.replicas] == [base_url]
        with pytest.raises(ProviderError, match="runs already"):
            provider.start_container(image)
        provider.stop_container()
        assert left() == []
    provider.stop_container()
    provider.close()


@engine
@pytest.mark.anyio
async def test_the_calls_work_where_a_loop_runs_and_in_a_block(image: str) -> None:
    with LocalDockerProvider() as provider:
        provider.wait_for_ready(provider.start_container(image), timeout_s=60)
        assert len(left()) == 2
    assert left() == []


@engine
@pytest.mark.parametrize(("option", "why"), [("--never-ready", "503"), ("--crash", "no such deck")])
def test_what_is_not_ready_is_a_timeout_error_with_the_servers_last_lines(image: str, option: str, why: str) -> None:
    written = threading.Event()
    provider = LocalDockerProvider(on_log=lambda *line: written.set())
    short_s = 3 if option == "--never-ready" else 60
    try:
        base_url = provider.start_container(image, command=[*SERVE, option])
        assert written.wait(60)
        for timeout_s in (short_s, 60):
            with pytest.raises(TimeoutError, match=r"(?s)the cards are shuffled") as caught:
                provider.wait_for_ready(base_url, timeout_s=timeout_s)
            if why in str(caught.value):  # else the machine was too slow for it to answer
                break
        assert why in str(caught.value)
    finally:
        provider.stop_container()


@engine
def test_a_spec_is_enough_to_start_without_arguments(image: str, tmp_path: Path) -> None:
    provider = LocalDockerProvider(DockerSpec(image=image, log_path=tmp_path / "log"))
    try:
        provider.wait_for_ready(provider.start_container(), timeout_s=60)
    finally:
        provider.close()
    assert "the cards are shuffled" in (tmp_path / "log").read_text()


def test_wrong_settings_are_told_at_once_and_near_names_with_them() -> None:
    with pytest.raises(ConfigurationError, match=r"no field 'memry' \(is 'memory' meant\?\)"):
        LocalDockerProvider(memry="2g")
    provider = LocalDockerProvider(memory="2g")
    with pytest.raises(ConfigurationError, match=r"no field 'env_var' \(is 'env_vars' meant\?\)"):
        provider.start_container("echo-env", env_var={})
    with pytest.raises(ConfigurationError, match="name an image"):
        provider.start_container()
    with pytest.raises(ProviderError, match=r"no container at http://127\.0\.0\.1:1; call start_container first"):
        provider.wait_for_ready("http://127.0.0.1:1")
