"""An environment on the tools of an MCP server: what its steps answer, and whose fault a failure is."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError as FastMCPToolError
from fastmcp.utilities.types import Image
from mcp.server.mcpserver import Context as SDKContext
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel, Field

from openenv_trl.environment import prepare, tool
from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError
from openenv_trl.mcp_environment import MCPEnvironment
from openenv_trl.types import Action, CallToolAction, ListToolsAction, Observation, ServerMode, State
from openenv_trl.wire.tools import CallToolObservation, ToolErrorType

pytestmark = pytest.mark.anyio


class Point(BaseModel):
    x: int = 1


@dataclasses.dataclass
class Size:
    wide: int = 2


class Desk(MCPEnvironment):
    """One FastMCP server with a tool of every kind."""

    def __init__(self) -> None:
        mcp: Any = FastMCP("desk")

        @mcp.tool
        def add(a: int, b: int = 2) -> int:
            """Add two numbers."""
            return a + b

        @mcp.tool
        def shout(text: str):  # type: ignore[no-untyped-def]
            return text.upper()

        @mcp.tool
        def count() -> dict[str, int]:
            return {"count": 1}

        @mcp.tool
        def point() -> Point:
            return Point()

        @mcp.tool
        def size() -> Size:
            return Size()

        @mcp.tool
        def nothing() -> None:
            return None

        @mcp.tool
        def fail(text: str) -> str:
            raise ValueError(text)

        @mcp.tool
        def complain() -> str:
            raise FastMCPToolError("The desk is locked.")

        @mcp.tool
        def secret() -> Any:
            return object()

        @mcp.tool
        async def wait_for_ever() -> str:
            await anyio.sleep_forever()
            return "never"

        @mcp.tool
        async def soon(value: int) -> int:
            await anyio.lowlevel.checkpoint()
            return value

        @mcp.tool
        async def named(text: str, context: Context) -> str:
            return f"{context.fastmcp.name}: {text}"

        @mcp.tool
        def picture():  # type: ignore[no-untyped-def]
            return Image(data=b"not really", format="png")

        @mcp.tool
        def which_thread() -> bool:
            return threading.current_thread() is threading.main_thread()

        super().__init__(mcp)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation()

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation(metadata={"impl": True, "timeout_s": timeout_s, **kwargs})

    @property
    def state(self) -> State:
        return State()


def _call(name: str, **arguments: Any) -> CallToolAction:
    return CallToolAction(tool_name=name, arguments=arguments)


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text, "annotations": None, "meta": None}]


WRAPPED = {"fastmcp": {"wrap_result": True}}


@pytest.mark.parametrize(
    ("action", "text", "structured", "meta", "data"),
    [
        (_call("add", a=1), "3", {"result": 3}, WRAPPED, 3),
        (_call("add", a="4", b=1), "5", {"result": 5}, WRAPPED, 5),
        (_call("shout", text="é"), "É", None, None, None),
        (_call("count"), '{"count":1}', {"count": 1}, None, {"count": 1}),
        (_call("point"), '{"x":1}', {"x": 1}, None, {"x": 1}),
        (_call("size"), '{"wide":2}', {"wide": 2}, None, {"wide": 2}),
        (_call("soon", value=7), "7", {"result": 7}, WRAPPED, 7),
        (_call("named", text="hi"), "desk: hi", {"result": "desk: hi"}, WRAPPED, "desk: hi"),
    ],
)
async def test_a_tools_value_has_the_public_packages_shape(
    action: CallToolAction, text: str, structured: Any, meta: Any, data: Any
) -> None:
    expected = {
        "content": _text(text),
        "structured_content": structured,
        "meta": meta,
        "data": data,
        "is_error": False,
    }
    desk = Desk()
    observation = await desk.step_async(action)
    assert observation == CallToolObservation(tool_name=action.tool_name, result=expected)
    assert await anyio.to_thread.run_sync(desk.step, action) == observation


async def test_a_tool_without_a_value_has_no_content() -> None:
    result = Desk().step(_call("nothing")).result
    assert (result["content"], result["data"]) == ([], None)


async def test_a_picture_stays_a_picture() -> None:
    (block,) = Desk().step(_call("picture")).result["content"]
    assert block["type"] == "image"


@pytest.mark.parametrize(
    ("action", "kind", "text"),
    [
        (_call("missing"), ToolErrorType.TOOL_NOT_FOUND, "Unknown tool: 'missing'"),
        (_call("add", a="x"), ToolErrorType.INVALID_ARGS, "1 validation error for call[add]\na\n  Input should be a"),
        (_call("add"), ToolErrorType.INVALID_ARGS, "1 validation error for call[add]\na\n  Missing required argument"),
        (_call("add", a=1, c=3), ToolErrorType.INVALID_ARGS, "1 validation error for call[add]\nc\n  Unexpected"),
        (_call("fail", text="invalid"), ToolErrorType.EXECUTION_ERROR, "Error calling tool 'fail': invalid"),
        (_call("fail", text="not found"), ToolErrorType.EXECUTION_ERROR, "Error calling tool 'fail': not found"),
        (_call("named"), ToolErrorType.INVALID_ARGS, "1 validation error for call[named]\ntext\n  Missing required"),
        (_call("complain"), ToolErrorType.EXECUTION_ERROR, "The desk is locked."),
        (_call("secret"), ToolErrorType.EXECUTION_ERROR, "Error calling tool 'secret': "),
    ],
)
async def test_a_failure_is_told_by_its_kind_and_not_by_its_words(
    action: CallToolAction, kind: ToolErrorType, text: str
) -> None:
    for observation in (await anyio.to_thread.run_sync(Desk().step, action), await Desk().step_async(action)):
        assert observation.result is None
        assert observation.error.error_type is kind
        assert observation.error.message.startswith(text)


async def test_an_asynchronous_tool_ends_at_the_steps_deadline_and_not_before() -> None:
    observation = await Desk().step_async(_call("wait_for_ever"), timeout_s=0.01)
    assert observation.error.error_type is ToolErrorType.TIMEOUT
    assert "0.01 s" in observation.error.message
    assert (await Desk().step_async(_call("soon", value=1), timeout_s=30)).error is None


async def test_a_synchronous_tool_never_runs_on_the_event_loop() -> None:
    assert (await Desk().step_async(_call("which_thread"))).result["data"] is False


async def test_it_does_where_the_class_says_so() -> None:
    class Quick(Desk):
        EXECUTION = "loop"

    assert (await Quick().step_async(_call("which_thread"))).result["data"] is True


async def test_a_tool_without_a_docstring_is_listed_with_an_empty_description() -> None:
    observation = Desk().step(ListToolsAction())
    descriptions = {each.name: each.description for each in observation.tools}
    assert (descriptions["add"], descriptions["shout"]) == ("Add two numbers.", "")
    assert {each["name"]: each["description"] for each in Desk().listed_tools()} == descriptions


async def test_a_listed_tool_has_its_schemas_without_titles() -> None:
    entry = Desk().listed_tools()[0]
    assert entry == {
        "name": "add",
        "title": None,
        "description": "Add two numbers.",
        "inputSchema": {
            "additionalProperties": False,
            "properties": {"a": {"type": "integer"}, "b": {"default": 2, "type": "integer"}},
            "required": ["a"],
            "type": "object",
        },
        "outputSchema": {
            "properties": {"result": {"type": "integer"}},
            "required": ["result"],
            "type": "object",
            "x-fastmcp-wrap-result": True,
        },
        "icons": None,
        "annotations": None,
        "meta": {"fastmcp": {"tags": []}},
        "execution": None,
    }


async def test_what_the_server_fills_in_is_no_argument() -> None:
    (schema,) = [each.input_schema for each in Desk().offered_tools() if each.name == "named"]
    assert list(schema["properties"]) == ["text"]


async def test_another_action_is_the_subclasss_own() -> None:
    assert Desk().step(Action(), timeout_s=3, extra=1).metadata == {"impl": True, "timeout_s": 3, "extra": 1}
    assert (await Desk().step_async(Action(), timeout_s=3)).metadata["timeout_s"] == 3


async def test_without_such_actions_the_caller_is_told_what_a_step_is() -> None:
    class Plain(Desk):
        _step_impl = MCPEnvironment._step_impl

    with pytest.raises(ActionValidationError, match="CallToolAction"):
        Plain().step(Action())


@pytest.mark.parametrize("name", ["reset", "step", "state", "close"])
async def test_reserved_names_are_refused(name: str) -> None:
    def taken() -> int:
        return 1

    taken.__name__ = name
    server: Any = FastMCP("x")
    server.tool(taken)
    with pytest.raises(ValueError, match="reserved"):
        _bare(server)
    with pytest.raises(ValueError, match="reserved"):
        _bare().tool()(taken)


def _bare(server: Any = None) -> Any:
    class Bare(MCPEnvironment):
        reset, state = Desk.reset, Desk.state

    return Bare(server)


async def test_tools_of_one_mode_are_there_in_servers_of_that_mode_only() -> None:
    environment = _bare(FastMCP("x"))

    @environment.tool(mode="production")
    def look(far: bool = False) -> str:
        """Look at the world."""
        return "the real one"

    @environment.tool(mode="simulation")
    def look(far: bool = False) -> str:  # noqa: F811
        """Look at the world."""
        return "a made-up one"

    @environment.tool(mode="simulation")
    def rewind() -> str:
        return "rewound"

    @environment.tool()
    def wave() -> str:
        return "hello"

    for mode, seen, names in (
        (ServerMode.PRODUCTION, "the real one", ["wave", "look"]),
        (ServerMode.SIMULATION, "a made-up one", ["wave", "look", "rewind"]),
    ):
        prepare(environment, mode)
        assert [each.name for each in environment.offered_tools()] == names
        assert [each["name"] for each in environment.listed_tools()] == names
        assert environment.call_tool("look", {"far": True})["data"] == seen
    prepare(environment, ServerMode.PRODUCTION)
    assert environment.step(_call("rewind")).error.error_type is ToolErrorType.TOOL_NOT_FOUND
    with pytest.raises(ValueError, match="mode"):
        environment.tool(mode="training")


async def test_a_tool_that_is_added_later_is_found() -> None:
    server: Any = FastMCP("x")
    environment = _bare(server)
    assert environment.offered_tools() == []
    server.tool(lambda: 5, name="five")
    assert environment.step(_call("five")).result["content"] == _text("5")
    assert [each.name for each in environment.offered_tools()] == ["five"]


async def test_a_tool_that_is_replaced_is_the_new_one_when_tools_are_listed() -> None:
    server: Any = FastMCP("x")
    environment = _bare(server)
    server.tool(lambda: 5, name="number", description="five")
    assert environment.step(_call("number")).result["content"] == _text("5")
    server.tool(lambda: 6, name="number", description="six")
    assert [each.description for each in environment.offered_tools()] == ["six"]
    assert environment.step(_call("number")).result["content"] == _text("6")


async def test_schemas_of_tools_without_a_server_say_what_the_function_takes() -> None:
    environment = _bare()

    @environment.tool()
    def place(x: int = Field(ge=1, description="Column"), title: str = "t") -> list[Point]:
        """Place it."""
        return [Point(x=x)]

    (entry,) = environment.listed_tools()
    assert entry["inputSchema"]["properties"] == {
        "x": {"description": "Column", "minimum": 1, "type": "integer"},
        "title": {"default": "t", "type": "string"},
    }
    assert entry["outputSchema"]["properties"]["result"]["type"] == "array"
    assert environment.step(_call("place", x=0)).error.error_type is ToolErrorType.INVALID_ARGS
    assert environment.step(_call("place", x=2)).result["content"] == _text('[{"x":2}]')


async def test_marked_methods_are_tools_too() -> None:
    class Marked(Desk):
        @tool
        def end(self) -> Observation:
            """End it."""
            return Observation(reward=1.0, done=True)

    environment = Marked()
    assert environment.offered_tools()[0].name == "end"
    assert environment.step(_call("end")) == Observation(reward=1.0, done=True)
    assert environment.step(_call("end", x=1)).error.error_type is ToolErrorType.INVALID_ARGS


async def test_the_official_sdks_server_will_do() -> None:
    server = MCPServer("x")

    @server.tool()
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    @server.tool()
    async def later(text: str, context: SDKContext) -> str:
        """Later."""
        return text

    environment = _bare(server)
    added = environment.step(_call("add", a=1)).result
    assert (added["content"], added["data"]) == (_text("3"), 3)
    assert (await environment.step_async(_call("later", text="x"))).result["data"] == "x"
    failed = await environment.step_async(_call("later"))
    assert failed.error.error_type is ToolErrorType.INVALID_ARGS
    assert [each["description"] for each in environment.listed_tools()] == ["Add.", "Later."]


async def test_a_class_that_overrides_step_alone_has_every_step_go_through_it() -> None:
    class Counting(Desk):
        steps = 0

        def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
            self.steps += 1
            observation = super().step(action, timeout_s=timeout_s, **kwargs)
            observation.reward = float(self.steps)
            return observation

    environment = Counting()
    first = await environment.step_async(_call("add", a=1))
    assert (first.reward, environment.steps) == (1.0, 1)
    second = await anyio.to_thread.run_sync(environment.step, _call("soon", value=2))
    assert (second.reward, second.result["data"]) == (2.0, 2)


async def test_a_class_that_overrides_both_counts_once() -> None:
    class Counting(Desk):
        steps = 0

        def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
            self.steps += 1
            return super().step(action, timeout_s=timeout_s, **kwargs)

        async def step_async(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
            self.steps += 1
            return await super().step_async(action, timeout_s=timeout_s, **kwargs)

    environment = Counting()
    for action in (_call("add", a=1), _call("soon", value=1), ListToolsAction(), Action()):
        await environment.step_async(action)
    assert environment.steps == 4


async def test_code_runs_only_in_a_process_of_its_own() -> None:
    environment = Desk()
    assert not environment.supports_code_mode
    with pytest.raises(ConfigurationError, match="EXECUTION"):
        environment.execute_code("result = 1")


async def test_code_calls_the_tools_as_functions() -> None:
    environment = Desk()
    prepare(environment, execution="process")  # as a worker process does
    run: Callable[[str], Observation] = environment.execute_code

    def in_thread(code: str) -> dict[str, Any]:
        return run(code).metadata

    assert environment.supports_code_mode
    code = "result = add(1, b=soon(5))"
    assert await anyio.to_thread.run_sync(in_thread, code) == {"result": 6}
    assert await anyio.to_thread.run_sync(in_thread, "fail('no')") == {"error": "ValueError: no"}
    assert await anyio.to_thread.run_sync(in_thread, "raise SystemExit(3)") == {"error": "SystemExit: 3"}


async def test_a_closed_environment_says_so() -> None:
    desk = Desk()
    desk.close()
    for call in (lambda: desk.step(_call("add", a=1)), desk.offered_tools, lambda: desk.call_tool("add", {"a": 1})):
        with pytest.raises(SessionStateError, match="closed"):
            call()


async def test_the_protocol_itself_is_within_reach() -> None:
    async with Desk().mcp_session() as client:
        assert (await client.call_tool("add", {"a": 1})).data == 3


async def test_tools_of_equal_code_and_other_types_are_checked_by_their_own() -> None:
    def make(kind: Any) -> Any:
        environment = _bare()

        def take(value: kind) -> str:  # type: ignore[valid-type]
            return repr(value)

        take.__annotations__["value"] = kind
        environment.tool()(take)
        return environment

    numbers, words = make(int), make(str)
    assert numbers.step(_call("take", value="1")).result["content"] == _text("1")
    assert words.step(_call("take", value="1")).result["content"] == _text("'1'")
