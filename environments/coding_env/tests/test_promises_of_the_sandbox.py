"""What the README says of every sandbox, and that the server says what its own is worth: in process and served."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from coding_env.models import CodeAction
from coding_env.sandbox.launcher import close_shared_sandboxes
from coding_env.sandbox.limits import Limits
from coding_env.server.coding_environment import CodingEnvironment
from coding_env.server.settings import EpisodeSettings, SandboxSettings

from openenv_trl.client import GenericEnvClient, fetch_metadata
from openenv_trl.errors import ConfigurationError
from openenv_trl.providers import ProcessProvider

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[1]
KINDS = {
    # Layers that are left out, what is left is worth, and the layers that are there wherever these tests run.
    "as it is here": ((), None, set[str]()),
    "on the disk": (("files", "user"), "partial", {"landlock", "seccomp"}),
    "filter only": (("files", "user", "landlock"), "weak", {"seccomp"}),
    "nothing": (("files", "user", "landlock", "seccomp"), "none", set[str]()),
}
VARIABLES = {"HOME", "LANG", "MALLOC_ARENA_MAX", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "TMPDIR"}
VARIABLES |= {"PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED"}


@pytest.fixture(params=["as it is here", "on the disk"])
async def environment(request: pytest.FixtureRequest) -> AsyncGenerator[CodingEnvironment]:
    settings = SandboxSettings(disabled_layers=KINDS[request.param][0], limits=Limits(output_bytes=2000))
    made = CodingEnvironment(EpisodeSettings(run_timeout_s=60), settings)
    await made.reset_async(seed=1)
    yield made
    made.close()


async def stdout(environment: CodingEnvironment, code: str) -> str:
    observation = await environment.step_async(CodeAction(code=code))
    assert observation.stderr == ""
    return observation.stdout


async def test_the_interpreter_cannot_be_changed(environment: CodingEnvironment) -> None:
    code = """import json, os, sys
library, refused = os.path.dirname(os.__file__), []
for path in (os.__file__, json.__file__, library + '/new.py', sys.executable or '/bin/sh', '/usr/lib/new.py',
             '/etc/ld.so.cache', '/new'):
    try:
        open(path, 'ab').close()
    except OSError as error:
        refused.append(path)
len(refused)"""
    assert await stdout(environment, code) == "7\n"


async def test_the_environment_is_not_the_servers(
    environment: CodingEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await stdout(environment, "import os; sorted(os.environ)") == _json(sorted(VARIABLES))
    close_shared_sandboxes()
    monkeypatch.setenv("SERVER_SECRET", "the-secret")
    monkeypatch.setenv("PYTHONPATH", "/the-secret")
    late = CodingEnvironment()  # started now, with the secret in this process's environment
    await late.reset_async()
    code = "import os, subprocess, sys\nseen = str(os.environ) + str(sys.path)\n"
    code += "try:\n    seen += open('/proc/self/environ').read()\nexcept OSError:\n    pass\n'the-secret' in seen"
    assert await stdout(late, code) == "false\n"
    late.close()


async def test_output_is_cut_while_it_streams(environment: CodingEnvironment) -> None:
    observation = await environment.step_async(CodeAction(code="print('begin')\nfor _ in range(9000): print('x' * 99)"))
    assert observation.stdout.startswith("begin\nxxx")
    assert "[... 898006 bytes left out ...]" in observation.stdout
    assert len(observation.stdout) < 2100
    endless = await environment.step_async(CodeAction(code="while True: print('x' * 9999)"))
    assert endless.exit_code == 137
    assert "more than 64 MB of output" in endless.stderr
    assert len(endless.stdout) < 2100


async def test_the_clock_kills_all_processes_of_a_run(environment: CodingEnvironment) -> None:
    marker = f"of-the-run-{time.time_ns()}"
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    code = f"""import os, signal, subprocess, sys
for number in set(range(1, 65)) - {{9, 19, 32, 33}}:
    signal.signal(number, signal.SIG_IGN)
try:
    left = subprocess.Popen([sys.executable, '-c', {program!r}, {marker!r}], start_new_session=True)
except OSError:
    pass  # where no processes can be started
print('started', flush=True)
while True:
    pass"""
    for timeout_s in (1.0, 60.0):
        observation = await environment.step_async(CodeAction(code=code), timeout_s=timeout_s)
        if observation.stdout:  # else the machine was too slow for it to begin
            break
    assert (observation.exit_code, observation.stdout) == (124, "started\n")
    assert "could not be interrupted" in observation.stderr
    with anyio.fail_after(60):
        while _processes(marker):  # noqa: ASYNC110
            await anyio.sleep(0.02)
    assert await stdout(environment, "40 + 2") == "42\n"


@pytest.mark.parametrize("kind", KINDS)
async def test_the_server_says_what_its_sandbox_is_worth_and_warns_where_that_is_little(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    disabled, level, layers = KINDS[kind]
    close_shared_sandboxes()
    with caplog.at_level(logging.WARNING):
        environment = CodingEnvironment(sandbox=SandboxSettings(disabled_layers=disabled, bubblewrap="never"))
    report = environment._sandbox.report  # pyright: ignore[reportPrivateUsage]
    assert level in (None, report.level.name.lower())
    assert layers <= set(report.layers)
    assert not set(disabled) & set(report.layers)
    assert report.sentence() in environment.get_metadata().description
    assert environment.state.sandbox == report.level.name.lower()
    warned = [record.getMessage() for record in caplog.records if "Sandbox: " in record.getMessage()]
    assert bool(warned) == (report.level.name != "STRONG")
    await environment.reset_async()
    # And the layers hold: that it is told does not yet mean that it is so.
    assert (await stdout(environment, _layers_seen(environment))) == _json(True)
    environment.close()


def test_a_layer_that_there_is_not_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"no layer netwrok .*CODING_DISABLED_LAYERS.* network,"):
        CodingEnvironment(sandbox=SandboxSettings(disabled_layers=("netwrok",)))


@pytest.mark.parametrize("kind", ["as it is here", "filter only"])
async def test_a_served_environment_says_what_it_is_worth(kind: str) -> None:
    disabled, level, _ = KINDS[kind]
    variables = {"CODING_DISABLED_LAYERS": ",".join(disabled), "CODING_BUBBLEWRAP": "never"}
    async with ProcessProvider(str(PACKAGE), env_vars=variables, ready_timeout_s=120) as servers:
        metadata = await fetch_metadata(servers.base_urls[0])
        async with GenericEnvClient(servers.base_urls[0]) as env:
            await env.reset(seed=1)
            told = (await env.state())["sandbox"]
        log = await servers.logs()
    assert level in (None, told)
    assert f"Sandbox: {told} (" in metadata["description"]
    assert (f"Sandbox: {told} (" in log) == (told != "strong")


def _layers_seen(environment: CodingEnvironment) -> str:
    """Code whose value is true where what is in reach is what the report says."""
    layers = environment._sandbox.report.layers  # pyright: ignore[reportPrivateUsage]
    servers_files = repr(str(PACKAGE / "models.py"))
    hidden = bool({"files", "landlock", "bubblewrap"} & set(layers))
    return f"""import os, socket
def works(function, *arguments):
    try:
        return bool(function(*arguments) or True)
    except OSError as error:
        return isinstance(error, PermissionError) and function is os.kill  # it is there, and another user's
all([
    works(open, {servers_files}) is {not hidden and os.access(PACKAGE / "models.py", os.R_OK)},
    works(os.kill, {os.getpid()}, 0) is {"processes" not in layers},
    {"user" not in layers} or os.getuid() >= 1_000_000,
    works(socket.socket) is {"network" in layers or "seccomp" not in layers},
])"""


def _processes(marker: str) -> list[str]:
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if marker.encode() in path.read_bytes() else []
        except OSError:
            continue
    return found


def _json(value: object) -> str:
    import json

    return f"{json.dumps(value)}\n"
