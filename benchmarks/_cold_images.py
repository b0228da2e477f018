"""The two images whose cold starts are compared: our echo environment's, and the public package's own template's."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _servers import PUBLIC_PYTHON, ROOT, python_of

TAG = "cold-start"
OURS = f"echo-env:{TAG}"
PUBLIC = f"public-template:{TAG}"
_PUBLIC_BASE = f"public-base:{TAG}"
# As the public package's own base is: slim, with uv and git. uv trusts what the base image trusts.
_BASE = """\
FROM python:3.11-slim
RUN apt-get update -q && apt-get install -y -q --no-install-recommends git curl && rm -rf /var/lib/apt/lists/* && \\
    pip install --quiet --no-cache-dir uv
ENV UV_NATIVE_TLS=1 UV_SYSTEM_CERTS=1
"""


@contextmanager
def built() -> Iterator[None]:
    """Both images, until the end of the block."""
    run(["make", "--file", "images.mk", "image-echo", f"IMAGE_TAG={TAG}"], cwd=ROOT)
    run(["docker", "build", "--quiet", "--tag", _PUBLIC_BASE, "-"], stdin=_BASE)
    try:
        with tempfile.TemporaryDirectory() as folder:
            _build_public(Path(folder))
        yield
    finally:
        run(["docker", "image", "rm", "--force", OURS, PUBLIC, _PUBLIC_BASE])


def megabytes(image: str) -> float:
    """The size of an image, with its base."""
    size = run(["docker", "image", "inspect", "--format", "{{.Size}}", image])
    return round(int(size) / 1e6, 1)


def run(command: list[str], cwd: Path | None = None, stdin: str | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def _build_public(folder: Path) -> None:
    """What ``openenv init`` writes, an echo, by its own Dockerfile; the release pinned to the one we compare with."""
    python_of("public")  # says what to do where it is missing
    run([str(PUBLIC_PYTHON.with_name("openenv")), "init", "probe_env", "--output-dir", str(folder)])
    package = folder / "probe_env" if (folder / "probe_env").is_dir() else folder
    dockerfile, project = package / "server" / "Dockerfile", package / "pyproject.toml"
    # Cache mounts change nothing in the image, and the classic builder has none.
    dockerfile.write_text(re.sub(r"--mount=\S+ \\\n\s*", "", dockerfile.read_text()))
    pinned, changes = re.subn(r'"openenv>=[\d.]+"', '"openenv==0.10.0"', project.read_text())
    if changes != 1:
        raise SystemExit(f"{project} does not ask for openenv as expected")
    project.write_text(pinned)
    base = f"BASE_IMAGE={_PUBLIC_BASE}"
    run(["docker", "build", "--build-arg", base, "--file", str(dockerfile), "--tag", PUBLIC, str(package)])
