"""The engine is looked for where the docker command looks."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from openenv_trl.errors import ConfigurationError, ProviderError
from openenv_trl.providers.docker.address import EngineAddress, find_engine


def context(folder: Path, name: str, host: str) -> None:
    meta = folder / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))


@contextmanager
def listening(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        yield


def test_an_address_that_is_given_wins_then_docker_host_then_the_context(tmp_path: Path) -> None:
    docker = tmp_path / ".docker"
    context(docker, "box", "tcp://box:2375")
    context(docker, "rig", "ssh://rig")
    (docker / "config.json").write_text('{"currentContext": "rig"}')
    everything = {"DOCKER_HOST": "unix:///host.sock", "DOCKER_CONTEXT": "box"}
    assert find_engine("unix:///given.sock", everything, tmp_path).url == "unix:///given.sock"
    assert find_engine(None, everything, tmp_path).url == "unix:///host.sock"
    assert find_engine(None, {"DOCKER_CONTEXT": "box"}, tmp_path).url == "tcp://box:2375"
    assert find_engine(None, {}, tmp_path).url == "ssh://rig"


def test_docker_config_says_where_the_contexts_are(tmp_path: Path) -> None:
    context(tmp_path / "elsewhere", "box", "tcp://box:2375")
    environment = {"DOCKER_CONFIG": str(tmp_path / "elsewhere"), "DOCKER_CONTEXT": "box"}
    assert find_engine(None, environment, tmp_path).url == "tcp://box:2375"


def test_a_rootless_engines_socket_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Path.is_socket
    monkeypatch.setattr(Path, "is_socket", lambda path: path.is_relative_to(tmp_path) and usual(path))
    with pytest.raises(ProviderError, match=r"no socket at /var/run/docker\.sock, .*Start Docker"):
        find_engine(None, {"XDG_RUNTIME_DIR": str(tmp_path)}, tmp_path)
    with listening(tmp_path / "docker.sock"):
        found = find_engine(None, {"XDG_RUNTIME_DIR": str(tmp_path), "DOCKER_CONTEXT": "default"}, tmp_path)
    assert found.url == f"unix://{tmp_path}/docker.sock"


def test_a_context_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"The Docker context 'casino' has no engine.*docker context ls"):
        find_engine(None, {"DOCKER_CONTEXT": "casino"}, tmp_path)


def test_settings_that_are_no_settings(tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"config\.json cannot be read"):
        find_engine(None, {}, tmp_path)


@pytest.mark.parametrize("source", ["docker_host", "DOCKER_HOST"])
def test_an_address_that_is_none(tmp_path: Path, source: str) -> None:
    named = {"docker_host": "/var/run/docker.sock"}.get(source)
    with pytest.raises(ConfigurationError, match=f"{source} is '/var/run/docker.sock', .*write unix:///path"):
        find_engine(named, {"DOCKER_HOST": "/var/run/docker.sock"}, tmp_path)


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    environment = {"DOCKER_HOST": "tcp://box:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
    with pytest.raises(ConfigurationError, match=r"TLS certificates .* cannot be used: .*DOCKER_CERT_PATH"):
        find_engine(None, environment, tmp_path)


@pytest.mark.parametrize(
    ("url", "machine"),
    [
        ("unix:///var/run/docker.sock", None),
        ("tcp://127.0.0.1:2375", None),
        ("tcp://box:2375", "box"),
        ("ssh://me@rig:22", "rig"),
    ],
)
def test_an_engine_on_another_machine_is_known_as_such(url: str, machine: str | None) -> None:
    assert EngineAddress(url).machine == machine
