"""Where the Docker engine is: found as the docker command finds it, so that both speak to the same one."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openenv_trl.errors import ConfigurationError, ProviderError

START_IT = (
    "Start Docker (on Linux `sudo systemctl start docker`, elsewhere Docker Desktop or `colima start`), or say where "
    "the engine is with docker_host or the environment variable DOCKER_HOST."
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class EngineAddress:
    """Where an engine listens."""

    url: str
    """``unix:///var/run/docker.sock``, ``tcp://host:2376``, ``ssh://user@host`` or ``npipe:...``."""
    tls: ssl.SSLContext | None = None
    """How to speak TLS with it, where it does."""

    @property
    def machine(self) -> str | None:
        """The name of the machine that it runs on; None where that is this one."""
        parts = urlsplit(self.url)
        if parts.scheme in ("unix", "npipe") or parts.hostname in _LOOPBACK:
            return None
        return parts.hostname


def find_engine(
    docker_host: str | None = None, environment: Mapping[str, str] | None = None, home: Path | None = None
) -> EngineAddress:
    """Find the engine: what is named, else DOCKER_HOST, else the docker command's context, else the usual sockets.

    Args:
        docker_host: The engine's address; None to look for it.
        environment: Environment variables; this process's if None.
        home: The user's folder; as the system says if None.

    Raises:
        ConfigurationError: An address or context that was named cannot be used.
        ProviderError: There is no engine in any usual place.
    """
    environment = os.environ if environment is None else environment
    home = Path.home() if home is None else home
    named = docker_host or environment.get("DOCKER_HOST")
    if named:
        certificates = Path(environment.get("DOCKER_CERT_PATH") or home / ".docker")
        tls = None
        if named.startswith(("tcp://", "https://")) and environment.get("DOCKER_TLS_VERIFY"):
            tls = _tls(certificates, verify=True)
        return _checked(named, tls, "docker_host" if docker_host else "DOCKER_HOST")
    folder = Path(environment.get("DOCKER_CONFIG") or home / ".docker")
    context = environment.get("DOCKER_CONTEXT") or _read(folder / "config.json").get("currentContext")
    if context and context != "default":
        return _of_context(folder, str(context))
    return _usual(environment, home)


def _usual(environment: Mapping[str, str], home: Path) -> EngineAddress:
    if os.name == "nt":
        return EngineAddress("npipe:////./pipe/docker_engine")
    usual = [Path("/var/run/docker.sock"), Path("/run/docker.sock")]
    if environment.get("XDG_RUNTIME_DIR"):
        usual.append(Path(environment["XDG_RUNTIME_DIR"]) / "docker.sock")  # a rootless engine's
    usual += [home / ".docker" / "run" / "docker.sock", home / ".docker" / "desktop" / "docker.sock"]
    for path in usual:
        if path.is_socket():
            return EngineAddress(f"unix://{path}")
    places = ", ".join(map(str, usual))
    raise ProviderError(f"No Docker engine runs here: there is no socket at {places}. {START_IT}", phase="start")


def _of_context(folder: Path, name: str) -> EngineAddress:
    key = hashlib.sha256(name.encode()).hexdigest()  # how the docker command names a context's folder
    described = _read(folder / "contexts" / "meta" / key / "meta.json")
    try:
        engine: dict[str, Any] = described["Endpoints"]["docker"]
        url = str(engine["Host"])
    except (KeyError, TypeError):
        raise ConfigurationError(
            f"The Docker context '{name}' has no engine in {folder}. See `docker context ls`, choose one with "
            "`docker context use`, or set DOCKER_HOST."
        ) from None
    certificates = folder / "contexts" / "tls" / key / "docker"
    tls = _tls(certificates, verify=not engine.get("SkipTLSVerify")) if certificates.is_dir() else None
    return _checked(url, tls, f"the Docker context '{name}'")


def _checked(url: str, tls: ssl.SSLContext | None, source: str) -> EngineAddress:
    if urlsplit(url).scheme not in ("unix", "tcp", "http", "https", "ssh", "npipe"):
        raise ConfigurationError(
            f"{source} is {url!r}, which is no address of a Docker engine: write unix:///path/docker.sock, "
            "tcp://host:2376 or ssh://user@host."
        )
    return EngineAddress(url, tls)


def _tls(folder: Path, verify: bool) -> ssl.SSLContext:
    try:
        authority = folder / "ca.pem"
        tls = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        if not verify:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if (folder / "cert.pem").exists():
            tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"The TLS certificates of the Docker engine in {folder} cannot be used: {error}. Set DOCKER_CERT_PATH to "
            "the folder with ca.pem, cert.pem and key.pem."
        ) from None
    return tls


def _read(path: Path) -> dict[str, Any]:
    try:
        found: Any = json.loads(path.read_bytes())
    except OSError:
        return {}  # as the docker command does
    except ValueError as error:
        raise ConfigurationError(f"Docker's settings {path} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]
