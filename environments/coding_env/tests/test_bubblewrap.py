"""bubblewrap starts the sandbox where the server may make no namespaces by itself; for real, by its own program.

Two kinds of system are made here: one that refuses `unshare` to everything but lets bubblewrap's `clone` through, and
one where bubblewrap has its rights by its owner and gives none on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coding_env
import pytest
from coding_env.sandbox import bubblewrap
from coding_env.sandbox.inside import kernel, seccomp
from coding_env.sandbox.launcher import Sandbox
from coding_env.server.coding_environment import CodingEnvironment
from coding_env.server.settings import SandboxSettings

import openenv_trl
from openenv_trl.errors import ConfigurationError

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or bubblewrap.program() is None,
    reason="bubblewrap is not installed: apt install bubblewrap",
)
NOBODY = 65534
SECRET = "the-secret-of-the-server"
PROGRAM = """
import json, sys
import anyio
from coding_env.sandbox.launcher import Sandbox

async def main():
    sandbox = Sandbox(warm=0, **json.loads(sys.argv[1]))
    first, second = sandbox.take(), sandbox.take()
    brought = []
    for session, code in ((first, "open('mine.txt', 'w').write('mine'); import os; print(os.getcwd())"),
                          *((second, code) for code in json.loads(sys.argv[2]))):
        folder = brought[0][0].strip() if brought else ""
        reply = await session.request({"op": "run", "code": code.replace("@FIRST@", folder)}, 60)
        brought.append([reply.stdout, reply.stderr + reply.failure])
    print(json.dumps([sandbox.report.described(), brought[1:]]))
    first.close()
    second.close()
    sandbox.close()

anyio.run(main)
"""


def refuse_unshare() -> None:
    """Be on a system where this process and all that it starts may not call `unshare`, but be given rights by files."""
    number = {"x86_64": 272, "aarch64": 97}[kernel.MACHINE]
    instruction = seccomp._instruction  # pyright: ignore[reportPrivateUsage]
    code = [instruction(0x20, 0), instruction(0x15, number, 0, 1), instruction(0x06, 0x00050001)]
    if os.geteuid():
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(b"".join([*code, instruction(0x06, 0x7FFF0000)]))


def without_rights(*codes: str, path: str = "", refused: bool = False, **options: Any) -> tuple[dict[str, Any], Any]:
    """Run code in a sandbox of a server without rights; with bubblewrap from a folder of one's choice."""
    # Not by `subprocess` itself, which would come before the filter, and that needs root.
    as_nobody = [] if os.geteuid() else ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    run = subprocess.run(
        [*as_nobody, python_for_all(), "-c", PROGRAM, json.dumps(options), json.dumps(codes)],
        capture_output=True,
        text=True,
        cwd="/tmp",
        env={
            "PATH": f"{path}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([*sys.path, *packages()]),
            "SERVER_SECRET": SECRET,
            "HOME": "/tmp",
        },
        preexec_fn=refuse_unshare if refused else None,
    )
    assert run.returncode == 0, run.stderr
    report, brought = json.loads(run.stdout)
    return report, brought


def packages() -> list[str]:
    return [str(Path(module.__path__[0]).parent) for module in (coding_env, openenv_trl)]


def python_for_all() -> str:
    """An interpreter of this version that also users without rights may start."""
    if os.geteuid():
        return sys.executable
    for python in (os.path.realpath(sys.executable), f"/usr/bin/python3.{sys.version_info.minor}"):
        with contextlib.suppress(OSError):
            subprocess.run([python, "-c", ""], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", check=True)
            return python
    pytest.skip("no interpreter of this version is there that a user without rights may start")


@pytest.fixture
def set_user_id_bubblewrap() -> Iterator[str]:
    """A folder with a bubblewrap that has its rights by its owner, which is root."""
    if os.geteuid():
        pytest.skip("only root makes a program that has root's rights")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = bubblewrap.program()
        assert program is not None
        shutil.copy(program, f"{folder}/bwrap")
        os.chmod(f"{folder}/bwrap", 0o4755)
        yield folder


ENVIRON = "import os\n[os.environ.get('SERVER_SECRET'), os.path.exists('/home'), os.path.exists('/var')]"
FIRST = "open('@FIRST@/mine.txt').read()"
CONNECT = "import socket\nsocket.socket().connect(('127.0.0.1', 9))"
START = "import subprocess\nsubprocess.run(['true']).returncode"


def test_under_bubblewrap_every_session_still_has_namespaces_of_its_own() -> None:
    report, brought = without_rights("open('mine.txt').read()", ENVIRON, CONNECT, START, bubblewrap="always")
    assert report["level"] == "strong"
    assert {"bubblewrap", "files", "processes", "network", "seccomp"} <= set(report["layers"])
    assert "FileNotFoundError" in brought[0][1]
    assert brought[1][0] == "[null, false, false]\n"
    assert brought[2][1].splitlines()[-1].startswith(("OSError", "ConnectionRefusedError", "PermissionError"))
    assert brought[3][0] == "0\n"


def test_where_only_bubblewrap_may_make_namespaces_it_does() -> None:
    report, brought = without_rights(ENVIRON, FIRST, CONNECT, START, refused=True)
    assert report["level"] == "partial"
    assert "bubblewrap" in report["layers"]
    assert "not permitted" in report["missing"]["files"]
    assert brought[0][0] == "[null, false, false]\n"
    assert [error.splitlines()[-1].split(":")[0] for _, error in brought[1:]] == ["PermissionError"] * 3


def test_a_bubblewrap_that_gives_no_rights_on_hides_the_servers_files_without_landlock(
    set_user_id_bubblewrap: str,
) -> None:
    secret = Path(set_user_id_bubblewrap, "secret.txt")
    secret.write_text(SECRET)
    secret.chmod(0o644)
    looks = f"open({str(secret)!r}).read()"
    options: dict[str, Any] = {"path": set_user_id_bubblewrap, "disabled": ["landlock"]}
    report, brought = without_rights(looks, ENVIRON, refused=True, **options)
    assert report["level"] == "partial"
    assert "bubblewrap" in report["layers"]
    assert not {"files", "landlock", "user"} & set(report["layers"])
    assert "FileNotFoundError" in brought[0][1]
    assert brought[1][0] == "[null, false, false]\n"
    # And without bubblewrap it is there: what hides it is bubblewrap.
    report, brought = without_rights(looks, bubblewrap="never", refused=True, **options)
    assert (report["level"], brought[0][0]) == ("weak", f'"{SECRET}"\n')


def test_a_bubblewrap_that_fails_is_told_of_and_the_sandbox_goes_on_without() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        Path(folder, "bwrap").write_text("#!/bin/sh\necho 'bwrap: no permission at all' >&2\nexit 1\n")
        os.chmod(f"{folder}/bwrap", 0o755)
        report, brought = without_rights("40 + 2", path=folder, refused=True)
        assert brought == [["42\n", ""]]
        assert "bubblewrap" not in report["layers"]
        assert report["missing"]["bubblewrap"] == "bwrap: no permission at all"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
            with pytest.raises(ConfigurationError, match="no permission at all"):
                Sandbox(bubblewrap="always")


def test_the_server_tells_of_bubblewrap() -> None:
    environment = CodingEnvironment(sandbox=SandboxSettings(bubblewrap="always"))
    environment.reset(seed=1)
    assert "bubblewrap" in environment.get_metadata().description
    environment.close()
