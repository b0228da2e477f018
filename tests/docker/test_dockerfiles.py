"""The Dockerfiles: one recipe for every environment, which also builds from the package's own folder."""

from __future__ import annotations

import difflib
import functools
import http.server
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted(ROOT.glob("environments/*/server/Dockerfile"))


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parts[-3])
def test_an_environment_may_add_to_the_shared_recipe_and_changes_none_of_it(dockerfile: Path) -> None:
    environment = dockerfile.parts[-3]
    shared = (ROOT / "environments" / "echo_env" / "server" / "Dockerfile").read_text()
    expected = shared.replace("echo_env", environment).replace("echo-env", environment.replace("_", "-"))
    changes = difflib.ndiff(expected.splitlines(), dockerfile.read_text().splitlines())
    assert [line for line in changes if line.startswith("- ")] == []


@pytest.fixture(scope="module")
def wheel_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """This checkout's library as a wheel, at an address that a build on the host's network reaches."""
    folder = tmp_path_factory.mktemp("index")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("openenv_trl-*.whl")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{wheel.name}"
        server.shutdown()


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_a_package_builds_from_its_own_folder_on_another_base(docker: Any, tmp_path: Path, wheel_address: str) -> None:
    name = uuid.uuid4().hex[:12]
    tag, base = f"echo-env:test-{name}", f"mirror-{name}/python:3.11-slim"
    context = tmp_path / "anywhere"
    shutil.copytree(ROOT / "environments" / "echo_env", context, ignore=shutil.ignore_patterns("__pycache__"))
    docker("tag", "python:3.11-slim", base)
    try:
        docker(
            *("build", "--network", "host", "--tag", tag, "--build-arg", f"BASE_IMAGE={base}"),
            *("--build-arg", f"OPENENV_TRL=openenv-trl @ {wheel_address}"),
            *("--file", str(context / "server" / "Dockerfile"), str(context)),
        )
        with docker.running(tag) as container:
            listed = docker("exec", container, "ls", "-A", "/app/env").stdout.split()
            assert "openenv.yaml" in listed
            assert "tests" not in listed
        assert docker.inspect(tag)["Config"]["Labels"]["org.opencontainers.image.base.name"] == base
    finally:
        docker("image", "rm", "--force", tag, check=False)
        docker("image", "rm", base, check=False)
