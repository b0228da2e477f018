"""Docker engines for tests: the machine's own, and private ones that a test may restart, kill or make a Swarm of."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from openenv_trl.chance import CHANCE

REQUIRED = os.environ.get("OPENENV_TRL_REQUIRE_DOCKER") == "1"


def leave_out(reason: str) -> NoReturn:
    """Skips the test, or fails it where a Docker engine is required (OPENENV_TRL_REQUIRE_DOCKER=1)."""
    if REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


def docker(*arguments: str, host: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs one docker command, on the machine's engine or another."""
    environment = os.environ if host is None else {**os.environ, "DOCKER_HOST": host}
    run = subprocess.run(["docker", *arguments], capture_output=True, text=True, env=environment)
    if check and run.returncode:
        pytest.fail(f"docker {' '.join(arguments)} failed:\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}")
    return run


def require_engine() -> None:
    """Leaves the test out where no engine answers."""
    if shutil.which("docker") is None or docker("info", check=False).returncode:
        leave_out(
            "No Docker engine answers. Start one: on Debian `apt-get install docker.io`, then `dockerd &` as root."
        )


def port_for_later(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A port that is free, for somebody who binds it later.

    It is none that the system gives to whoever asks for any: another test's connection may be given such a one.
    """
    while True:
        port = CHANCE.randint(20000, 30000)
        with socket.socket(socket.AF_INET, kind) as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """A block that one process of this machine's at a time is in."""
    with (Path(tempfile.gettempdir()) / "openenv-trl-tests-engines.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_bridge(name: str) -> int:
    """Makes a bridge with a network that no other interface of this machine's has; returns the network's number."""
    with one_at_a_time():
        addresses = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=True).stdout
        taken = {int(number) for number in re.findall(r"inet 172\.30\.(\d+)\.", addresses)}
        number = CHANCE.choice([each for each in range(256) if each not in taken])
        subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
        subprocess.run(["ip", "addr", "add", f"172.30.{number}.1/24", "dev", name], check=True)
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return number


class PrivateEngine:
    """A Docker engine of the test's own, with its own images, containers and bridge. Needs root.

    It sets no iptables rules: published ports go through Docker's own proxy, and networks are not kept apart.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "docker.sock"
        self.host = f"unix://{self.socket}"
        self._bridge = f"ot{uuid.uuid4().hex[:8]}"
        self._process: subprocess.Popen[bytes] | None = None
        number = make_bridge(self._bridge)
        self.overlay_port = 19000 + number
        """A UDP port for a Swarm's overlay networks: two Swarms on one machine may not share it."""

    def start(self) -> None:
        """Starts the engine, or starts it again with what it had."""
        options = ("--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec"))
        network = ("--bridge", self._bridge, "--iptables=false", "--ip-masq=false")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["dockerd", *options, "--pidfile", str(self.folder / "pid"), "--host", self.host, *network],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        deadline = time.monotonic() + 180
        while docker("info", host=self.host, check=False).returncode:
            if time.monotonic() > deadline or self._process.poll() is not None:
                pytest.fail(f"the private engine did not come up:\n{(self.folder / 'log').read_text()[-3000:]}")
            time.sleep(0.1)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ends the engine: with SIGTERM its containers end too, with SIGKILL they live until it starts again."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(180)
            self._process = None
        if number == signal.SIGKILL:
            # Its containerd dies with it, and where nobody reaps it at once a new engine would wait for it in vain.
            (self.folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def load(self, *images: str) -> None:
        """Copies images from the machine's engine."""
        with subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE) as save:
            subprocess.run(["docker", "--host", self.host, "load", "--quiet"], stdin=save.stdout, check=True)

    def docker(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs one docker command on it."""
        return docker(*arguments, host=self.host, check=check)

    def close(self) -> None:
        """Removes all of it."""
        if self._process is not None:
            names = self.docker("ps", "--all", "--quiet", check=False).stdout.split()
            if names:
                self.docker("rm", "--force", "--volumes", *names, check=False)
        self.stop()
        self._end_what_is_left()
        subprocess.run(["ip", "link", "del", self._bridge], check=False)
        for mount in [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]:
            if mount.startswith(str(self.folder)):
                subprocess.run(["umount", "-l", mount], check=False)

    def _end_what_is_left(self) -> None:
        """Ends containers that outlived the engine, as where it was killed, and the processes above them."""
        address = str(self.folder / "exec" / "containerd" / "containerd.sock")
        for shim in psutil.process_iter(["cmdline"]):
            if address in (shim.info["cmdline"] or ()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    for process in [*reversed(shim.children(recursive=True)), shim]:
                        with contextlib.suppress(psutil.NoSuchProcess):
                            process.kill()


@contextlib.contextmanager
def private_engine(images: Sequence[str] = ()) -> Iterator[PrivateEngine]:
    """A private engine with copies of the machine's images, for a block; left out where it cannot be had."""
    require_engine()
    if os.geteuid() != 0 or shutil.which("dockerd") is None or shutil.which("ip") is None:
        leave_out("A private Docker engine needs root, dockerd and ip.")
    # Not pytest's folder: a socket's path may not be longer than a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="engine-"))
    engine = PrivateEngine(folder)
    try:
        engine.start()
        if images:
            engine.load(*images)
        yield engine
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)
