"""An MCP environment on a server, wherever its class wants its code to run: each tool runs where it may."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import threading
import urllib.request
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openenv_trl.mcp_environment import MCPEnvironment
from openenv_trl.server import create_app
from openenv_trl.server.settings import AppSettings
from openenv_trl.types import CallToolAction, Observation, State
from openenv_trl.wire.tools import CallToolObservation

Ask = Callable[[Any, str | bytes], str]

WORKSHOP = """
    import os
    import threading
    from typing import Any

    import anyio
    from fastmcp import FastMCP

    from openenv_trl.mcp_environment import MCPEnvironment
    from openenv_trl.types import Action, Observation, State


    gate = threading.Event()


    class CodeAction(Action):
        code: str


    class Workshop(MCPEnvironment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            mcp: Any = FastMCP("workshop")

            @mcp.tool
            def where() -> dict:
                return {"pid": os.getpid(), "thread": threading.get_ident()}

            @mcp.tool
            async def where_later() -> dict:
                await anyio.sleep(0)
                return {"pid": os.getpid(), "thread": threading.get_ident()}

            @mcp.tool
            def fail() -> str:
                raise ValueError("broken")

            @mcp.tool
            def wait() -> str:
                return "opened" if gate.wait(30) else "gave up"

            super().__init__(mcp)
            self._state = State()

        def reset(self, seed=None, episode_id=None, **kwargs):
            self._state = State(episode_id=episode_id)
            return Observation(metadata={"loop": threading.get_ident()})

        def step(self, action, timeout_s=None, **kwargs):
            self._state.step_count += 1
            return super().step(action, timeout_s=timeout_s, **kwargs)

        async def step_async(self, action, timeout_s=None, **kwargs):
            self._state.step_count += 1
            return await super().step_async(action, timeout_s=timeout_s, **kwargs)

        def _step_impl(self, action, timeout_s=None, **kwargs):
            return self.execute_code(action.code)

        @property
        def state(self):
            return self._state


    class OnlyStep(Workshop):
        step_async = MCPEnvironment.step_async

        def step(self, action, timeout_s=None, **kwargs):
            return super().step(action, timeout_s=timeout_s, **kwargs)
"""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module with the environments, where a process of its own can import it too."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "workshop_environment.py").write_text(textwrap.dedent(WORKSHOP))
    sys.path.insert(0, str(folder))
    yield import_module("workshop_environment")
    sys.path.remove(str(folder))


def _call(name: str, **arguments: Any) -> str:
    return json.dumps({"type": "step", "data": {"type": "call_tool", "tool_name": name, "arguments": arguments}})


def _rpc(name: str) -> str:
    data = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}}
    return json.dumps({"type": "mcp", "data": data})


def _step(connection: Any, ask: Ask, name: str, **arguments: Any) -> Any:
    return json.loads(ask(connection, _call(name, **arguments)))["data"]["observation"]


@pytest.mark.parametrize("execution", ["auto", "loop", "thread", "process"])
def test_each_tool_runs_where_the_execution_says(
    execution: Any, workshop: Any, serve: Callable[..., Any], ask: Ask
) -> None:
    settings = AppSettings(execution=execution)
    app = create_app(workshop.Workshop, CallToolAction, CallToolObservation, settings=settings)
    loops: list[int] = []

    async def loop_thread(_: Request) -> Response:
        loops.append(threading.get_ident())
        return Response()

    app.router.routes.append(Route("/loop", loop_thread))
    served = serve(app)
    with urllib.request.urlopen(f"{served.url}/loop", timeout=30):
        (loop,) = loops
    connection = served.socket()
    ask(connection, '{"type":"reset","data":{"episode_id":"e"}}')
    found = [_step(connection, ask, name)["result"]["data"] for name in ("where", "where_later")]
    found += [json.loads(ask(connection, _rpc(name)))["data"]["result"]["data"] for name in ("where", "where_later")]
    assert [each["pid"] == os.getpid() for each in found] == [execution != "process"] * 4
    on_loop = [each["thread"] == loop for each in found]
    if execution != "process":
        assert on_loop == {"auto": [False, True] * 2, "loop": [True] * 4, "thread": [False] * 4}[execution]
    failure = _step(connection, ask, "fail")["error"]
    assert failure == {"error_type": "execution_error", "message": "Error calling tool 'fail': broken"}
    state = json.loads(ask(connection, '{"type":"state"}'))["data"]
    assert state == {"episode_id": "e", "step_count": 3}


@pytest.mark.parametrize("execution", ["auto", "thread", "process"])
def test_a_class_with_step_alone_has_all_tools(
    execution: Any, workshop: Any, serve: Callable[..., Any], ask: Ask
) -> None:
    settings = AppSettings(execution=execution)
    app = create_app(workshop.OnlyStep, CallToolAction, CallToolObservation, settings=settings)
    connection = serve(app).socket()
    ask(connection, '{"type":"reset"}')
    for name in ("where", "where_later"):
        assert _step(connection, ask, name)["result"]["is_error"] is False
        assert json.loads(ask(connection, _rpc(name)))["data"]["result"]["is_error"] is False


def test_the_modes_tools_are_those_of_the_servers_mode(serve: Callable[..., Any], ask: Ask) -> None:
    class Two(MCPEnvironment):
        def __init__(self) -> None:
            super().__init__(FastMCP("two"))

            @self.tool(mode="production")
            def look() -> str:
                """Look at the real one."""
                return "real"

            @self.tool(mode="simulation")
            def look() -> str:  # noqa: F811
                """Look at a made-up one."""
                return "made up"

        def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
            return Observation()

        @property
        def state(self) -> State:
            return State()

    for mode, seen in (("production", "real"), ("simulation", "made up")):
        connection = serve(create_app(Two, CallToolAction, CallToolObservation, mode=mode)).socket()
        assert _step(connection, ask, "look")["result"]["data"] == seen
        listed = json.loads(ask(connection, '{"type":"step","data":{"type":"list_tools"}}'))["data"]["observation"]
        assert seen.split()[0] in listed["tools"][0]["description"]
        assert json.loads(ask(connection, _rpc("look")))["data"]["result"]["data"] == seen


def test_code_runs_in_the_sessions_own_process(workshop: Any, serve: Callable[..., Any], ask: Ask) -> None:
    settings = AppSettings(execution="process")
    served = serve(create_app(workshop.Workshop, workshop.CodeAction, Observation, settings=settings))
    connection = served.socket()
    ask(connection, '{"type":"reset"}')

    def run(code: str) -> Any:
        return json.loads(ask(connection, json.dumps({"type": "step", "data": {"code": code}})))["data"]

    assert run("result = where()['pid']")["metadata"]["result"] not in (None, os.getpid())
    assert run("result = where_later()['pid']")["metadata"]["result"] not in (None, os.getpid())
    assert run("1 / 0")["metadata"] == {"error": "ZeroDivisionError: division by zero"}


def test_code_that_does_not_end_is_killed_at_the_steps_deadline(
    workshop: Any, serve: Callable[..., Any], ask: Ask
) -> None:
    settings = AppSettings(execution="process", step_timeout_s=1.0)
    served = serve(create_app(workshop.Workshop, workshop.CodeAction, Observation, settings=settings))
    connection = served.socket()
    ask(connection, '{"type":"reset"}')
    answer = json.loads(ask(connection, '{"type":"step","data":{"code":"while True: pass"}}'))["data"]
    assert "deadline" in answer["message"]
    ask(served.socket(), '{"type":"reset"}')  # the only slot is free again


def test_code_elsewhere_is_refused_and_says_what_to_set(workshop: Any, serve: Callable[..., Any], ask: Ask) -> None:
    connection = serve(create_app(workshop.Workshop, workshop.CodeAction, Observation)).socket()
    answer = json.loads(ask(connection, '{"type":"step","data":{"code":"result = 1"}}'))["data"]
    assert answer["code"] == "EXECUTION_ERROR"
    assert 'EXECUTION = "process"' in answer["message"]


def test_a_synchronous_tool_keeps_nobody_else_waiting(workshop: Any, serve: Callable[..., Any], ask: Ask) -> None:
    served = serve(create_app(workshop.Workshop, CallToolAction, CallToolObservation, max_concurrent_envs=2))
    slow, quick = served.socket(), served.socket()
    slow.send(_call("wait"))
    for _ in range(3):
        _step(quick, ask, "where_later")
    workshop.gate.set()
    assert json.loads(slow.recv(timeout=30))["data"]["observation"]["result"]["data"] == "opened"
