"""Where the attacks are made: each kind of sandbox that this machine can have, in a program with outer limits."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import coding_env

import openenv_trl

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE.parents[2] / "environments" / "coding_env"
ANSWER_S = 150.0
BARE_S = 20.0
NOBODY = 65534
HARDENED = (
    *("--interactive", "--rm", "--init", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges", "--network", "none", "--pids-limit", "256", "--memory", "2g"),
)


@dataclass(frozen=True)
class Place:
    """A kind of sandbox.

    Attributes:
        who: ``root``, ``nobody`` or ``mapped`` (see `outer_limits`), or ``container``.
        disabled: Layers that are left out.
        profile: Whether the container has the environment's own seccomp profile.
    """

    who: str
    disabled: tuple[str, ...] = ()
    profile: bool = False


PLACES = {
    "as it is here": Place("root"),
    "without root": Place("nobody"),
    "root without namespaces": Place("root", ("files",)),
    "without namespaces": Place("nobody", ("files",)),
    "filter only": Place("nobody", ("files", "landlock")),
    "container": Place("container"),
    "container with the profile": Place("container", profile=True),
}


class NotHereError(Exception):
    """This machine cannot have such a place; the text says why."""


class LostError(Exception):
    """The arena has ended, or does not answer: the attack got out of the sandbox."""


class Arena:
    """The program that attacks take place in.

    Args:
        place: Where.
        image: The environment's image, for a container.
        answer_s: Seconds that an attack, and all that is looked at after it, may take.
    """

    def __init__(self, place: Place, image: str = "", answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._name = f"coding-attacks-{uuid.uuid4().hex[:12]}" if place.who == "container" else ""
        self.process = subprocess.Popen(
            [*self._command(place, image), json.dumps(place.disabled)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            start_new_session=True,
            env=variables(),
        )
        self._lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        try:
            report = self._answer()
        except LostError:
            self.close()
            raise
        self.layers: list[str] = report["layers"]
        self.level: str = report["level"]

    def attack(self, case: dict[str, Any]) -> dict[str, Any]:
        """Make an attack, and return what came of it.

        Raises:
            LostError: The arena did not outlive it.
        """
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(case) + "\n")
            self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End it, with all that is in it."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()  # which ends it
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            if self._name:
                subprocess.run(["docker", "rm", "--force", self._name], capture_output=True)
            self.process.kill()
            self.process.wait()

    def _command(self, place: Place, image: str) -> list[str]:
        program = "arena.py"
        if place.who == "container":
            profile = ["--security-opt", f"seccomp={ENVIRONMENT / 'server' / 'docker-seccomp.json'}"]
            return [
                *("docker", "run", "--name", self._name, *HARDENED, *(profile if place.profile else ())),
                *("--volume", f"{HERE}:/attacks:ro", "--env", "PYTHONPATH=", "--env", "PYTHONDONTWRITEBYTECODE=1"),
                *("--env", "OPENENV_ATTACK_LIMITS=namespaces", image, "python", f"/attacks/{program}"),
            ]
        # Sessions that see the machine's own files have users of their own, who may have to read another Python.
        python = sys.executable if place.who == "root" and not place.disabled else python_for_all()
        return limited(place.who, [python, str(HERE / program)])

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put("")

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=self._answer_s)
        except queue.Empty:
            self.process.kill()  # what is in it ends with it
            raise LostError(f"no answer in {self._answer_s:g} s") from None
        if not line:
            raise LostError(f"the server ended with {self.process.wait(30)}")
        return json.loads(line)


def attack_bare(case: dict[str, Any]) -> dict[str, Any]:
    """Make an attack on a server that confines nothing, inside of the outer limits, and return what came of it.

    ``{}`` where that server, and whoever watches it, answer no more.
    """
    command = limited("mapped", [python_for_all(), "-I", str(HERE / "bare.py")])
    try:
        done = subprocess.run(command, input=json.dumps(case), capture_output=True, text=True, timeout=BARE_S)
    except subprocess.TimeoutExpired:
        return {}
    return json.loads(done.stdout) if done.stdout else {}


def limited(who: str, command: list[str]) -> list[str]:
    """The command inside of `outer_limits`."""
    return [sys.executable, "-S", str(HERE / "outer_limits.py"), who, *command]


def variables() -> dict[str, str]:
    """The environment variables of a place: its interpreter may be one that does not know of this checkout."""
    folders = [str(Path(module.__path__[0]).parent) for module in (coding_env, openenv_trl)]
    # Not this interpreter's own library, which would be another's.
    standard = os.path.realpath(sys.base_prefix) + os.sep
    paths = [folder for folder in (*sys.path, *folders) if folder and not os.path.realpath(folder).startswith(standard)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


def python_for_all() -> str:
    """An interpreter of this version that also users without rights may start.

    Raises:
        NotHereError: There is none.
    """
    if os.geteuid() != 0:
        return sys.executable
    for python in (os.path.realpath(sys.executable), f"/usr/bin/python3.{sys.version_info.minor}"):
        code = "import sys; print(sys.version_info[:2])"
        with contextlib.suppress(OSError):
            tried = subprocess.run([python, "-c", code], user=NOBODY, group=NOBODY, capture_output=True, text=True)
            if tried.stdout.strip() == str(sys.version_info[:2]):
                return python
    raise NotHereError("no interpreter of this version is there that a user without rights may start")


@contextlib.contextmanager
def built_image() -> Iterator[str]:
    """The environment's image, for as long as the block.

    Raises:
        NotHereError: No Docker engine answers.
    """
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        raise NotHereError("no Docker engine answers")
    tag = f"coding-env:attacks-{uuid.uuid4().hex[:8]}"
    dockerfile = str(ENVIRONMENT / "server" / "Dockerfile")
    command = ["docker", "build", "--tag", tag, "--file", dockerfile, str(HERE.parents[2])]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        raise RuntimeError(built.stdout[-3000:] + built.stderr[-3000:])
    try:
        yield tag
    finally:
        subprocess.run(["docker", "image", "rm", "--force", tag], capture_output=True)
