"""Both executors answer ordinary code alike, but where ``cases.yaml`` says that they do not.

And smolagents answers here as in the public environment.
"""

from __future__ import annotations

import json
import os
import sysconfig
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from coding_env.models import CodeAction
from coding_env.sandbox import exchange
from coding_env.sandbox.launcher import Sandbox
from coding_env.sandbox.limits import Limits
from coding_env.sandbox.session import Reply
from coding_env.server.coding_environment import CodingEnvironment
from coding_env.server.settings import EpisodeSettings, SandboxSettings, settings_from_variables

from openenv_trl.errors import ConfigurationError

pytestmark = pytest.mark.anyio
pytest.importorskip("smolagents", reason="the other executor is smolagents: pip install smolagents")
HERE = Path(__file__).resolve().parent
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in yaml.safe_load((HERE / "cases.yaml").read_text())}
PUBLIC = HERE.parents[3] / ".venv-openenv" / "bin" / "python"
IN_PUBLIC = """
import json, logging, sys
sys.path.append(sys.argv[1])
from openenv.core.tools.local_python_executor import PyExecutor

logging.disable(logging.CRITICAL)
brought = []
for cells in json.load(sys.stdin):
    executor = PyExecutor()
    try:
        results = [executor.run(cell) for cell in cells]
        brought.append([results[-1].stdout, results[-1].stderr, results[-1].exit_code])
    except BaseException as error:
        brought.append(["", repr(error), None])
print(json.dumps(brought))
"""


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[dict[str, Sandbox]]:
    made = {name: Sandbox(Limits(), warm=0, executor=name) for name in ("python", "smolagents")}
    yield made
    for sandbox in made.values():
        sandbox.close()


async def last_reply(sandbox: Sandbox, cells: list[str]) -> Reply:
    session = sandbox.take()
    replies = [await session.request({"op": "run", "code": cell}, 60) for cell in cells]
    session.close()
    return replies[-1]


@pytest.mark.parametrize("executor", ["python", "smolagents"])
@pytest.mark.parametrize("name", CASES)
async def test_ordinary_code_brings_what_the_table_says(
    executor: str, name: str, sandboxes: dict[str, Sandbox]
) -> None:
    case = CASES[name]
    expected = case["smolagents"] if executor == "smolagents" and "smolagents" in case else case
    reply = await last_reply(sandboxes[executor], case["cells"])
    assert reply.data is not None, reply.failure
    assert [line for line in reply.stdout.splitlines() if line] == expected.get("stdout", [])
    assert reply.data["exit_code"] == (1 if "error" in expected else 0)
    assert expected.get("error", "") in reply.stderr
    assert bool(reply.stderr) == ("error" in expected)


def test_every_difference_says_why() -> None:
    for name, case in CASES.items():
        assert case.get("smolagents", {"why": "alike"})["why"], name


async def test_smolagents_answers_as_in_the_public_package(sandboxes: dict[str, Sandbox]) -> None:
    if not PUBLIC.exists():
        text = "no .venv-openenv with the public package: `make .venv-openenv/.openenv` builds it"
        if os.environ.get("OPENENV_TRL_REQUIRE_INTEROP") == "1":
            pytest.fail(text)
        pytest.skip(text)
    # It does not have smolagents, which it takes from here; hashes decide in which order it names the modules.
    run = await anyio.run_process(
        [str(PUBLIC), "-c", IN_PUBLIC, sysconfig.get_path("purelib")],
        input=json.dumps([case["cells"] for case in CASES.values()]).encode(),
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert run.returncode == 0, run.stderr.decode()
    for (name, case), (stdout, stderr, exit_code) in zip(CASES.items(), json.loads(run.stdout), strict=True):
        if exit_code is None:
            assert stderr == "SystemExit()", name  # which there goes through the server
            continue
        reply = await last_reply(sandboxes["smolagents"], case["cells"])
        assert (reply.data or {})["exit_code"] == exit_code, name
        if exit_code == 0:
            assert (reply.stdout, reply.stderr) == (stdout, stderr), name
        else:
            assert stderr.endswith(reply.stderr), name


async def test_a_run_of_smolagents_whose_time_is_up_keeps_names(
    sandboxes: dict[str, Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "GRACE_S", 60.0)  # a busy machine may take longer to come to the interrupt
    session = sandboxes["smolagents"].take()
    await session.request({"op": "run", "code": "kept = 7"}, 60)
    slow = "import time\ntry:\n    time.sleep(600)\nexcept Exception:\n    pass"
    reply = await session.request({"op": "run", "code": slow}, 0.2)
    assert reply.timed_out
    assert "KeyboardInterrupt" in reply.stderr
    assert (await session.request({"op": "run", "code": "kept"}, 60)).stdout == "7"
    session.close()


@pytest.fixture
async def environment() -> AsyncGenerator[CodingEnvironment]:
    made = CodingEnvironment(EpisodeSettings(run_timeout_s=60), SandboxSettings(executor="smolagents"))
    yield made
    made.close()


async def test_hidden_tests_judge_in_python_whatever_the_executor(environment: CodingEnvironment) -> None:
    await environment.reset_async(prompt="", tests=["assert list(up(3)) == [0, 1, 2]"])
    assert "Yield" in (await environment.step_async(CodeAction(code="def up(n):\n    yield n\nlist(up(1))"))).stderr
    observation = await environment.run_tests("def up(n):\n    yield from range(n)")
    assert (observation.reward, observation.done) == (1.0, True)


async def test_equal_seeds_give_equal_numbers_and_files_can_be_written(environment: CodingEnvironment) -> None:
    drawn: list[str] = []
    for seed in (3, 3, 4):
        await environment.reset_async(seed=seed)
        drawn.append((await environment.step_async(CodeAction(code="import random\nrandom.random()"))).stdout)
    assert drawn[0] == drawn[1] != drawn[2]
    assert (await environment.write_file("a.txt", "one")).exit_code == 0
    assert (await environment.read_file("a.txt")).stdout == "one"


async def test_it_is_no_border_and_is_in_the_sandbox_all_the_same(environment: CodingEnvironment) -> None:
    """Who gets round it finds the sandbox's layers, and no package of the server's in reach."""
    await environment.reset_async()
    code = "import os\nos.getcwd(), os.listdir('/'), dict(os.environ)"
    settings = SandboxSettings(executor="smolagents", imports=("os",))
    through = CodingEnvironment(EpisodeSettings(run_timeout_s=60), settings)
    await through.reset_async()
    observation = await through.step_async(CodeAction(code=code))
    through.close()
    if "files" in through._sandbox.report.layers:  # pyright: ignore[reportPrivateUsage]
        folder, listed, variables = json.loads(observation.stdout)
        assert (folder, variables["HOME"]) == ("/workspace", "/workspace")
        assert "home" not in listed
        assert "var" not in listed
    else:
        assert "PermissionError" in observation.stderr
    assert (await environment.step_async(CodeAction(code=code))).exit_code == 1
    assert "run by smolagents' interpreter" in environment.get_metadata().description


def test_modules_that_cannot_be_imported_are_named_at_the_start() -> None:
    _, settings = settings_from_variables({"CODING_EXECUTOR": "smolagents", "CODING_IMPORTS": "json, nothing_such"})
    assert settings.imports == ("json", "nothing_such")
    with pytest.raises(ConfigurationError, match="Non-installed authorized modules: nothing_such"):
        CodingEnvironment(sandbox=settings)
    with pytest.raises(ConfigurationError, match="at least 128"):
        settings_from_variables({"CODING_EXECUTOR": "smolagents", "CODING_MEMORY_MB": "127"})
    with pytest.raises(ConfigurationError, match="executor"):
        settings_from_variables({"CODING_EXECUTOR": "perl"})
