"""Served, it is the same environment: by actions, by tools, through the typed client, with many sessions at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import httpx
import pytest
import yaml
from coding_env import CodeAction, CodingEnv
from coding_env import models as models_module

from openenv_trl.client import GenericEnvClient, fetch_metadata, fetch_schema
from openenv_trl.errors import EnvironmentExecutionError
from openenv_trl.providers import ProcessProvider

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    variables = {"CODING_RUN_TIMEOUT_S": "60", "CODING_MAX_ATTEMPTS": "2", "CODING_MEMORY_MB": "256"}
    with ProcessProvider(str(PACKAGE), env_vars=variables, ready_timeout_s=120) as provider:
        yield provider.replicas[0].base_url


async def test_the_typed_client_runs_code(server: str) -> None:
    async with CodingEnv(server) as env:
        await env.reset(seed=1)
        result = await env.step(CodeAction(code="x = 20\nx + 1"))
        assert (result.observation.stdout, result.observation.exit_code, result.done) == ("21\n", 0, False)
        result = await env.step(CodeAction(code="x / 0"))
        assert "ZeroDivisionError" in result.observation.stderr
        state = await env.state()
        assert (state.step_count, state.last_exit_code, state.seed) == (2, 1, 1)


async def test_an_observation_has_the_public_fields_and_no_others(server: str) -> None:
    async with httpx.AsyncClient() as http:
        reply = (await http.post(f"{server}/reset", json={})).json()
    assert reply["observation"].keys() - {"metadata"} == {"stdout", "stderr", "exit_code"}
    assert (await fetch_schema(server))["action"]["required"] == ["code"]


async def test_tools_solve_a_task(server: str) -> None:
    async with GenericEnvClient(server) as env:
        names = [tool.name for tool in await env.list_tools()]
        assert names == ["run_python", "write_file", "read_file", "list_files", "run_tests"]
        opening = await env.reset(task_id="clamp")
        assert "clamp(value, low, high)" in opening.observation["stdout"]

        async def call(name: str, **arguments: str) -> object:
            return await env.step({"type": "call_tool", "tool_name": name, "arguments": arguments})

        code = "def clamp(value, low, high):\n    return max(low, min(value, high))\n"
        await call("write_file", path="solution.py", content=code)
        first = await env.step({"type": "call_tool", "tool_name": "run_tests", "arguments": {}})
        assert (first.observation["stdout"], first.done) == ("4 of 5 hidden tests passed.\n", False)
        await call("run_python", code="text = open('solution.py').read()")
        await call(
            "run_python",
            code="text = text.replace('return', 'if low > high: raise ValueError\\n    return')\n"
            "open('solution.py', 'w').write(text)",
        )
        last = await env.step({"type": "call_tool", "tool_name": "run_tests", "arguments": {}})
        assert (last.reward, last.done) == (1.0, True)
        with pytest.raises(EnvironmentExecutionError, match=r"over.*reset"):
            await env.step({"code": "1"})


async def test_a_long_run_holds_up_nobody_else(server: str) -> None:
    async with CodingEnv(server) as slow, CodingEnv(server) as quick, anyio.create_task_group() as group:
        await slow.reset()
        await quick.reset()
        group.start_soon(slow.step, CodeAction(code="while True: pass"))
        for _ in range(20):
            assert (await quick.step(CodeAction(code="40 + 2"))).observation.stdout == "42\n"
        group.cancel_scope.cancel()  # nothing else ends it


async def test_a_session_that_is_left_leaves_no_process(server: str) -> None:
    marker = f"left-{time.time_ns()}"
    async with CodingEnv(server) as env:
        await env.reset()
        result = await env.step(CodeAction(code=_sleeper(marker)))
        if result.observation.exit_code:
            pytest.skip("no processes can be started in this sandbox")
        assert await _there(marker)
    assert await _gone(marker)


def _sleeper(marker: str) -> str:
    """Code that starts a process with the marker in its command line."""
    program = "import time; time.sleep(600)"
    return f"import subprocess, sys\nleft = subprocess.Popen([sys.executable, '-c', {program!r}, {marker!r}])"


async def _there(marker: str) -> bool:
    """Wait for a while until a process has the marker: its command line is written a moment after it was started."""
    return await _until(lambda: bool(_processes(marker)))


async def _gone(marker: str) -> bool:
    """Wait for a while until no process has the marker."""
    return await _until(lambda: not _processes(marker))


async def _until(holds: Callable[[], bool]) -> bool:
    for _ in range(1200):
        if holds():
            return True
        await anyio.sleep(0.05)
    return False


def _processes(marker: str) -> list[str]:
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if marker.encode() in path.read_bytes() else []
        except OSError:
            continue
    return found


async def test_metadata_tells_what_the_sandbox_is_worth_and_names_what_the_manifest_names(server: str) -> None:
    manifest = yaml.safe_load((PACKAGE / "openenv.yaml").read_text())
    metadata, schema = await fetch_metadata(server), await fetch_schema(server)
    assert (metadata["name"], metadata["version"]) == (manifest["name"], manifest["version"])
    assert metadata["description"].startswith(manifest["description"])
    assert "Sandbox: " in metadata["description"]
    assert schema["action"]["title"] == manifest["action"]
    assert schema["observation"]["title"] == manifest["observation"]
    assert hasattr(models_module, manifest["action"])


async def test_a_killed_server_leaves_no_process_of_the_sandbox() -> None:
    code = (
        "import anyio, sys\nfrom coding_env.sandbox.launcher import Sandbox\n"
        "async def main():\n    session = Sandbox(warm=2).take()\n"
        "    await session.request({'op': 'run', 'code': sys.argv[1]}, 60)\n"
        "    print('ready', flush=True)\n    await anyio.sleep(600)\n"
        "anyio.run(main)"
    )
    marker = f"orphan-{time.time_ns()}"
    start = _sleeper(marker)
    async with await anyio.open_process([sys.executable, "-c", code, start], stderr=None) as process:
        assert process.stdout is not None
        assert b"ready" in await process.stdout.receive()
        process.kill()
    assert await _gone(marker)
