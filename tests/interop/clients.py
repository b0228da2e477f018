"""Play every feature with every client of whichever package this Python has: prints what each saw, as JSON.

Usage: ``python clients.py '{"theirs": {"probe": "http://…", …}, "ours": {…}}'``. What is printed is
``{server: {client: {feature: seen}}}``, in the same words whatever the package.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from environments import CallToolAction, ProbeAction, ProbeEnv

try:
    from openenv.core.env_server.mcp_types import ListToolsAction
    from openenv.core.generic_client import GenericEnvClient
    from openenv.core.mcp_client import MCPToolClient
except ImportError:
    from openenv_trl.client import GenericEnvClient, MCPToolClient
    from openenv_trl.types import ListToolsAction

    HAS_TWO_WIRES = True
else:
    HAS_TWO_WIRES = False

CODES = {
    "ActionValidationError": "VALIDATION_ERROR",
    "EnvironmentExecutionError": "EXECUTION_ERROR",
    "SessionCapacityError": "CAPACITY_REACHED",
    "EnvironmentFactoryError": "FACTORY_ERROR",
}

FREE_AGAIN_S = 15.0
"""For a slot whose client has gone."""

Seen = Any
Addresses = dict[str, str]
Play = Callable[["Players", Addresses], Coroutine[Any, Any, Seen]]


class Players:
    """How one kind of client is made and called."""

    def __init__(self, make: Callable[[str], Any], action: Callable[..., Any]) -> None:
        self.make = make
        self.action = action

    async def open(self, url: str) -> Any:
        client = self.make(url)
        await of(client.connect())
        return client


async def of(value: Any) -> Any:
    """A call's result, whether its client is asynchronous or blocking."""
    return await value if inspect.isawaitable(value) else value


async def refusal(call: Callable[[], Any]) -> dict[str, Any]:
    """How a call was refused: the code, the fields that were named, and of a tool's failure the kind."""
    try:
        await of(call())
    except Exception as error:
        told = re.search(r"code: (\w+)", str(error))
        code = CODES.get(type(error).__name__) or (told[1] if told else "")
        fields = [each["loc"] for each in getattr(error, "errors", None) or []]
        return {"code": code, "fields": fields, "kind": getattr(error, "error_type", "failed"), "text": str(error)}
    return {"code": "none", "fields": [], "kind": "none", "text": ""}


def shown(result: Any) -> dict[str, Any]:
    """A result of the probe, typed or not."""
    observation = result.observation
    fields = observation if isinstance(observation, dict) else observation.model_dump()
    return {"echoed": fields["echoed"], "n": fields["n"], "reward": result.reward, "done": result.done}


def stated(state: Any) -> dict[str, Any]:
    fields = state if isinstance(state, dict) else state.model_dump()
    return {key: fields[key] for key in ("episode_id", "step_count", "total") if key in fields}


async def episode(players: Players, at: Addresses) -> Seen:
    env = await players.open(at["probe"])
    first = shown(await of(env.reset(seed=7, level=3)))
    steps = [shown(await of(env.step(players.action(message=text, n=2)))) for text in ("hi", "end")]
    state = stated(await of(env.state()))
    await of(env.close())
    return {"reset": first, "steps": steps, "state": state}


async def asynchronous_environment(players: Players, at: Addresses) -> Seen:
    env = await players.open(at["async_probe"])
    first = shown(await of(env.reset(seed=1)))
    step = shown(await of(env.step(players.action(message="x"))))
    await of(env.close())
    return {"reset": first, "step": step}


async def production_mode(players: Players, at: Addresses) -> Seen:
    env = await players.open(at["production"])
    await of(env.reset())
    step = shown(await of(env.step(players.action(message="x"))))
    await of(env.close())
    return step


async def validation_error(players: Players, at: Addresses) -> Seen:
    env = await players.open(at["probe"])
    await of(env.reset())
    refused = await refusal(lambda: env.step(players.action(message="")))
    after = shown(await of(env.step(players.action(message="still"))))["echoed"]
    await of(env.close())
    return {"code": refused["code"], "fields": refused["fields"], "then": after}


async def execution_error(players: Players, at: Addresses) -> Seen:
    env = await players.open(at["probe"])
    await of(env.reset())
    refused = await refusal(lambda: env.step(players.action(message="boom")))
    state = stated(await of(env.state()))
    await of(env.close())
    return {"code": refused["code"], "says why": "kaboom" in refused["text"], "state": state}


async def capacity(players: Players, at: Addresses) -> Seen:
    first = await players.open(at["lonely"])
    await of(first.reset())

    async def second() -> None:
        client = await players.open(at["lonely"])
        try:
            await of(client.reset())
        finally:
            await of(client.close())

    refused = await refusal(second)
    await of(first.close())
    ends = time.monotonic() + FREE_AGAIN_S  # the other side may take a moment to free the slot
    while (last := await refusal(second))["code"] != "none" and time.monotonic() < ends:
        pass
    return {"refused": refused["code"], "1/1": "1/1" in refused["text"], "after close": last["code"]}


async def failed_factory(players: Players, at: Addresses) -> Seen:
    async def open_one() -> None:
        client = await players.open(at["bad_factory"])
        try:
            await of(client.reset())
        finally:
            await of(client.close())

    refused = await refusal(open_one)
    return {"code": refused["code"], "names it": "BadFactory" in refused["text"]}


async def two_sessions(players: Players, at: Addresses) -> Seen:
    one, other = await players.open(at["probe"]), await players.open(at["probe"])
    await of(one.reset())
    await of(other.reset())
    await of(one.step(players.action(message="a")))
    counts = [stated(await of(env.state()))["step_count"] for env in (one, other)]
    await of(one.close())
    await of(other.close())
    return counts


async def tools_listed(players: Players, at: Addresses) -> Seen:
    env = await players.open(at["desk"])
    tools = await of(env.list_tools())
    has = [await of(env.has_tool(name)) for name in ("add", "fly")]
    await of(env.close())
    return {
        "tools": sorted([tool.name, tool.description or "", sorted(tool.input_schema["properties"])] for tool in tools),
        "has": has,
    }


async def tools_called(players: Players, at: Addresses) -> Seen:
    env = await players.open(at["desk"])
    await of(env.reset())
    seen = [
        await of(env.call_tool("add", a=1, b=2)),
        await of(env.call_tool("count")),
        await of(env.call_tool("count")),
    ]
    await of(env.close())
    return seen


async def tools_failed(players: Players, at: Addresses) -> Seen:
    env = await players.open(at["desk"])
    await of(env.reset())
    calls = {
        "unknown": lambda: env.call_tool("fly"),
        "raises": lambda: env.call_tool("fail"),
        "wrong argument": lambda: env.call_tool("add", a="x", b=2),
        "missing argument": lambda: env.call_tool("add", a=1),
    }
    codes = {name: (await refusal(call))["kind"] for name, call in calls.items()}
    after = await of(env.call_tool("add", a=1, b=1))
    await of(env.close())
    return {**codes, "then": after}


async def argument_called_name(players: Players, at: Addresses) -> Seen:
    env = await players.open(at["desk"])
    try:
        return await of(env.call_tool("greet", name="ann"))
    except TypeError:
        return "TypeError"
    finally:
        await of(env.close())


async def tool_steps(players: Players, at: Addresses) -> Seen:
    env = await players.open(at["desk"])
    first = await of(env.reset())
    listed = (await of(env.step(ListToolsAction()))).observation
    called = (await of(env.step(CallToolAction(tool_name="add", arguments={"a": 1, "b": 2})))).observation
    failed = (await of(env.step(CallToolAction(tool_name="fly")))).observation
    state = await of(env.state())
    await of(env.close())
    return {
        "reset": [first.reward, first.observation.metadata],
        "listed": len(listed.tools),
        "called": [called.tool_name, called.result["data"], called.error],
        "failed": [failed.tool_name, failed.result, getattr(failed.error.error_type, "value", "")],
        "state": [state.episode_id, state.step_count],
    }


async def tools_capacity(players: Players, at: Addresses) -> Seen:
    """A client that is gone leaves a free slot, three times over."""
    for _ in range(3):
        ends = time.monotonic() + FREE_AGAIN_S
        while (outcome := await refusal(lambda: _count_once(players, at["lonely_desk"])))["code"] != "none":
            if time.monotonic() > ends:
                return outcome["text"]
    return "free again"


async def _count_once(players: Players, url: str) -> None:
    env = await players.open(url)
    await of(env.call_tool("count"))
    await of(env.close())


PROBE_PLAYS: list[Play] = [
    episode,
    asynchronous_environment,
    production_mode,
    validation_error,
    execution_error,
    capacity,
    failed_factory,
    two_sessions,
]
TOOL_PLAYS: list[Play] = [tools_listed, tools_called, tools_failed, argument_called_name, tool_steps, tools_capacity]


def typed_action(message: str, n: int = 0) -> ProbeAction:
    return ProbeAction.model_construct(message=message, n=n)  # unchecked, so that the server has something to refuse


KINDS: dict[str, tuple[Players, list[Play], bool]] = {}
for name, client, action, plays in (
    ("typed", ProbeEnv, typed_action, PROBE_PLAYS),
    ("generic", GenericEnvClient, dict, PROBE_PLAYS),
    ("tools", MCPToolClient, dict, TOOL_PLAYS),
):
    KINDS[f"{name} async"] = (Players(client, action), plays, True)
    KINDS[f"{name} sync"] = (Players(lambda url, client=client: client(url).sync(), action), plays, False)
    if HAS_TWO_WIRES:  # without being told, ours speaks the other wire to its own servers
        on_public_wire = Players(lambda url, client=client: client(url, wire="openenv"), action)
        KINDS[f"{name} async, OpenEnv wire"] = (on_public_wire, plays, True)


def run_blocking(play: Coroutine[Any, Any, Seen]) -> Seen:
    """Run a play whose client blocks: nothing in it ever waits, so it needs no loop."""
    try:
        play.send(None)
    except StopIteration as over:
        return over.value
    raise RuntimeError("a blocking client gave something to await")


async def limited(play: Awaitable[Seen]) -> Seen:
    return await asyncio.wait_for(play, 60)


def main() -> None:
    seen: dict[str, dict[str, dict[str, Seen]]] = {}
    for server, addresses in json.loads(sys.argv[1]).items():
        for kind, (players, plays, is_async) in KINDS.items():
            for play in plays:
                try:
                    outcome = (
                        asyncio.run(limited(play(players, addresses)))
                        if is_async
                        else run_blocking(play(players, addresses))
                    )
                except Exception as error:
                    outcome = f"{type(error).__name__}: {error}"
                seen.setdefault(server, {}).setdefault(kind, {})[play.__name__.replace("_", " ")] = outcome
    print(json.dumps(seen))


main()
