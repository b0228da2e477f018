"""Both packages' servers and clients, each in a Python of its own: the public package in ``.venv-openenv``.

``make test`` builds that environment. Without it these tests are skipped; with OPENENV_TRL_REQUIRE_INTEROP=1 they fail.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHONS = {"theirs": ROOT / ".venv-openenv" / "bin" / "python", "ours": Path(sys.executable)}
MATRIX = pytest.StashKey[dict[tuple[str, str, str, str], str]]()

Addresses = dict[str, dict[str, str]]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MATRIX] = {}


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what was played with which client on which server."""
    cells = config.stash[MATRIX]
    for kinds in (("typed", "generic"), ("tools",)):
        rows = {key[:3] for key in cells if key[1].startswith(kinds)}
        if not rows:
            continue
        features = list(dict.fromkeys(key[3] for key in cells if key[1].startswith(kinds)))
        terminalreporter.write_line("")
        terminalreporter.write_line(f"{'client':<36}{'server':<8}" + "  ".join(features))
        for client, kind, server in sorted(rows, key=lambda row: (row[2], row[0], row[1])):
            marks = [cells.get((client, kind, server, feature), "") for feature in features]
            line = "  ".join(f"{mark:<{len(feature)}}" for mark, feature in zip(marks, features, strict=True))
            terminalreporter.write_line(f"{client + ', ' + kind:<36}{server:<8}{line}".rstrip())
    if "ok*" in cells.values():
        terminalreporter.write_line("* as far as the public package's client goes: see THEIR_CLIENT in test_matrix.py")


@pytest.fixture
def matrix(request: pytest.FixtureRequest) -> dict[tuple[str, str, str, str], str]:
    """What was played so far, and how it went: "ok", "ok*" with a known lack of the public client's, or "FAIL"."""
    return request.config.stash[MATRIX]


@pytest.fixture(scope="session")
def their_python() -> Path:
    """The Python that has the public package."""
    python = PYTHONS["theirs"]
    if not python.exists():
        text = f"no {python.relative_to(ROOT)} with the public package: make .venv-openenv/.openenv builds it"
        if os.environ.get("OPENENV_TRL_REQUIRE_INTEROP") == "1":
            pytest.fail(text)
        pytest.skip(text)
    return python


@pytest.fixture(scope="session")
def run_script(their_python: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Run a script of this folder with one of the Pythons, at most until the tests end: ``run_script("theirs", …)``."""
    with ExitStack() as stack:

        def run(package: str, script: str, *arguments: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [PYTHONS[package], HERE / script, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=_environment(),
                cwd=HERE,
            )
            stack.callback(process.wait, 20)
            stack.callback(process.kill)
            return process

        yield run


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where the ported packages are: as they were written, and with their import lines changed."""
    spec = spec_from_file_location("ported_import_lines", HERE.parent / "ported" / "import_lines.py")
    assert spec is not None
    assert spec.loader is not None
    import_lines = module_from_spec(spec)
    spec.loader.exec_module(import_lines)
    into = tmp_path_factory.mktemp("ported")
    for manifest in import_lines.PACKAGES.glob("*/openenv.yaml"):
        import_lines.ported(manifest.parent.name, into)
    return {"theirs": import_lines.PACKAGES, "ours": into}


@pytest.fixture(scope="session")
def addresses(run_script: Callable[..., subprocess.Popen[str]], folders: dict[str, Path]) -> Addresses:
    """Where each environment and each ported package is served: ``addresses["theirs"]["probe"]``."""
    processes = {package: run_script(package, "serve.py", str(folder)) for package, folder in folders.items()}
    found: Addresses = {}
    for package, process in processes.items():
        assert process.stdout is not None
        found[package] = json.loads(process.stdout.readline())
        for url in found[package].values():
            _wait_until_healthy(url)
    return found


@pytest.fixture(scope="session")
def seen(addresses: Addresses, run_script: Callable[..., subprocess.Popen[str]]) -> dict[str, Any]:
    """What each package's clients saw: ``seen[client package][server package][kind][feature]``."""
    running = {package: run_script(package, "clients.py", json.dumps(addresses)) for package in PYTHONS}
    return {package: json.loads(process.communicate(timeout=240)[0]) for package, process in running.items()}


def _environment() -> dict[str, str]:
    """This process's environment variables, without what would change how either package behaves."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OPENENV", "PYTHONPATH"))}


def _wait_until_healthy(url: str) -> None:
    for _ in range(400):
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=60):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    pytest.fail(f"{url} did not come up")
