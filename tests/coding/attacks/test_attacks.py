"""Every attack is contained, the server lives, and the next session is clean: on each kind of sandbox that is here.

One file a case in ``cases``: what it does, what it would have gained, and what stops it. A case prints PWNED where it
gets what it wants. All of it runs in a program with limits of its own (see `arena`), so that a hole harms that alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import resource
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import coding_env
import pytest
import yaml

import openenv_trl

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox's layers are Linux's")
HERE = Path(__file__).resolve().parent
CASES: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text()) for path in sorted((HERE / "cases").glob("*.yaml"))
}
ANSWER_S = 150.0
NOBODY = 65534
PROFILES: dict[str, tuple[str, list[str]]] = {
    # Where it runs, and the layers that are left out.
    "as it is here": ("here", []),
    "without root": ("without rights", []),
    "without namespaces": ("without rights", ["user", "files"]),
    "filter only": ("without rights", ["user", "files", "landlock"]),
    "container": ("container", []),
    "container with the profile": ("container with the profile", []),
}
LIKE_ANOTHER = ("without root", "container with the profile")
"""These have the layers that it has here already: one case of four, or all with OPENENV_TRL_ALL_ATTACKS=1."""
HARDENED = (
    *("--interactive", "--rm", "--init", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges", "--network", "none", "--pids-limit", "256", "--memory", "2g"),
)


def _all_attacks() -> Iterator[Any]:
    for profile in PROFILES:
        marks = [pytest.mark.docker] if "container" in profile else []
        some = profile in LIKE_ANOTHER and os.environ.get("OPENENV_TRL_ALL_ATTACKS") != "1"
        for name in list(CASES)[:: 4 if some else 1]:
            yield pytest.param(profile, name, marks=marks, id=f"{profile}-{name}")


class Arena:
    """The program that attacks take place in."""

    def __init__(self, profile: str, image: Callable[[], str]) -> None:
        place, disabled = PROFILES[profile]
        more: dict[str, Any] = {"preexec_fn": _outer_limits}
        if "container" in place:
            command, more = _in_a_container(image(), with_profile="profile" in place), {}
        elif place == "without rights" and os.geteuid() == 0:
            command = [_python_for_all(), str(HERE / "arena.py")]
            more |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        else:
            command = [sys.executable, str(HERE / "arena.py")]
        self.process = subprocess.Popen(
            [*command, json.dumps(disabled)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/tmp",
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, *_package_folders()])},
            **more,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        self.layers: list[str] = self._answer()["layers"]

    def attack(self, case: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"kind": case["kind"], "code": case["code"]}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()  # which ends it
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put("")

    def _answer(self) -> dict[str, Any]:
        line = self._lines.get(timeout=ANSWER_S)
        assert line, f"the server ended with {self.process.wait(10)}"
        return json.loads(line)


def _in_a_container(image: str, *, with_profile: bool) -> list[str]:
    profile = HERE.parents[1] / "server" / "docker-seccomp.json"
    options = ["--security-opt", f"seccomp={profile}"] if with_profile else []
    return [
        *("docker", "run", *HARDENED, *options, "--volume", f"{HERE}:/attacks:ro", "--env", "PYTHONPATH="),
        *(image, "python", "/attacks/arena.py"),
    ]


def _python_for_all() -> str:
    """An interpreter of this version that also users without rights may start."""
    for python in (os.path.realpath(sys.executable), f"/usr/bin/python3.{sys.version_info.minor}"):
        code = "import sys; print(sys.version_info[:2])"
        with contextlib.suppress(OSError):
            tried = subprocess.run([python, "-c", code], user=NOBODY, group=NOBODY, capture_output=True, text=True)
            if tried.stdout.strip() == str(sys.version_info[:2]):
                return python
    pytest.skip("no interpreter of this version is there that a user without rights may start")


def _package_folders() -> list[str]:
    """Where the packages of this checkout are: an interpreter outside of the virtual environment does not know."""
    return [str(Path(module.__path__[0]).parent) for module in (coding_env, openenv_trl)]


def _outer_limits() -> None:
    """Of the whole run, should the sandbox have a hole: memory, time and files of each process; all of them where root
    may make a control group."""
    for kind, value in (
        (resource.RLIMIT_AS, 4 << 30),
        (resource.RLIMIT_CPU, 300),
        (resource.RLIMIT_FSIZE, 64 << 20),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))
    for controller, limit, value in (("pids", "pids.max", "400"), ("memory", "memory.limit_in_bytes", str(3 << 30))):
        with contextlib.suppress(OSError):
            group = Path("/sys/fs/cgroup", controller, f"openenv-attacks-{os.getpid()}")
            group.mkdir()
            (group / limit).write_text(value)
            (group / "cgroup.procs").write_text(str(os.getpid()))


@pytest.fixture(scope="module")
def image() -> Iterator[Callable[[], str]]:
    """Builds the environment's image when it is first asked for."""
    built: list[str] = []

    def build() -> str:
        if not built:
            if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
                if os.environ.get("OPENENV_TRL_REQUIRE_DOCKER") == "1":
                    pytest.fail("no Docker engine answers")
                pytest.skip("no Docker engine answers")
            root, tag = HERE.parents[3], f"coding-env:attacks-{uuid.uuid4().hex[:8]}"
            dockerfile = str(HERE.parents[1] / "server" / "Dockerfile")
            made = subprocess.run(
                ["docker", "build", "--tag", tag, "--file", dockerfile, str(root)], capture_output=True, text=True
            )
            assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
            built.append(tag)
        return built[0]

    yield build
    for tag in built:
        subprocess.run(["docker", "image", "rm", "--force", tag], capture_output=True)


@pytest.fixture(scope="module")
def arenas() -> Iterator[dict[str, Arena]]:
    started: dict[str, Arena] = {}
    yield started
    for arena in started.values():
        arena.close()
        for controller in ("pids", "memory"):
            group = Path("/sys/fs/cgroup", controller, f"openenv-attacks-{arena.process.pid}")
            for _ in range(100):  # its last processes are still dying
                try:
                    group.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.1)


@pytest.mark.parametrize(("profile", "name"), list(_all_attacks()))
@pytest.mark.timeout(900)
def test_an_attack_is_contained(profile: str, name: str, arenas: dict[str, Arena], image: Callable[[], str]) -> None:
    case = CASES[name]
    arena = arenas.get(profile)
    if arena is None or arena.process.poll() is not None:
        arena = arenas[profile] = Arena(profile, image)
    needs = case.get("needs")
    if needs and not set(needs) & set(arena.layers):
        pytest.skip(f"needs one of the layers {', '.join(needs)}; here are {', '.join(arena.layers) or 'none'}")
    result = arena.attack(case)
    told = json.dumps(result, indent=1)
    assert "PWNED" not in result["stdout"], told
    if case["kind"] == "solution":
        assert result["passed"] == case.get("passes", 0), told
        assert "ModuleNotFound" not in told, told
    else:
        # The attack itself was made, and did not only fail at its first line.
        assert not any(error in result["stderr"] for error in ("ImportError", "ModuleNotFound", "NameError")), told
        if case.get("timed_out"):
            assert result["timed_out"], told
        if case.get("failure"):
            assert result["failure"], told
        assert len(result["stdout"]) + len(result["stderr"]) <= case.get("max_stdout", 1 << 15), told
        if not case.get("own_session_spoilt"):
            assert result["afterwards"] == "42" or not result["usable"], told
    assert result["connections"] == 0, told
    assert result["secret_kept"], told
    assert result["neighbour"] == '"mine"', told
    assert result["fresh"] == "[] 2.0", told
    assert result["processes"] <= 3, told


def test_every_case_says_what_it_would_have_gained() -> None:
    assert len(CASES) >= 60
    for name, case in CASES.items():
        assert case["name"] == name
        assert case["kind"] in ("run", "solution")
        assert all(case[key] for key in ("gains", "expected", "code")), name
