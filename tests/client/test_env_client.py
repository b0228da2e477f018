"""A client with a real server: calls, their order, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from openenv_trl.client import EnvClient, GenericAction, GenericEnvClient
from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    DeadlineExceededError,
    EnvironmentExecutionError,
    EnvironmentFactoryError,
    SessionCapacityError,
    SessionLostError,
    SessionStateError,
)
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State, StepResult

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("wire")]


class Text(Action):
    text: str


class TypedClient(EnvClient[Text, str, State]):
    def _step_payload(self, action: Text) -> dict[str, Any]:
        return {"text": action.text}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[str]:
        return StepResult(payload["observation"]["text"], payload["reward"], payload["done"])

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State.model_validate(payload)


async def test_an_episode(parrot: str) -> None:
    async with GenericEnvClient(parrot) as env:
        result = await env.reset(seed=7, episode_id="e", level=3)
        assert result.observation["text"] == "ready"
        assert result.metadata == {"arguments": {"seed": 7, "episode_id": "e", "level": 3}}
        assert (result.reward, result.done) == (None, False)
        result = await env.step({"text": "bye"})
        assert (result.observation["text"], result.reward, result.done) == ("bye", 0.5, True)
        assert await env.state() == {"episode_id": None, "step_count": 1}


async def test_a_typed_client_speaks_its_own_types(parrot: str) -> None:
    async with TypedClient(parrot) as env:
        await env.reset()
        assert await env.step(Text(text="hello")) == StepResult("hello", 0.5, False)
        assert (await env.state()).step_count == 1


@pytest.mark.parametrize("action", [{"text": "x"}, GenericAction(text="x"), Text(text="x")])
async def test_an_action_is_a_mapping_or_a_model(parrot: str, action: Any) -> None:
    async with GenericEnvClient(parrot) as env:
        result = await env.step(action)
        assert result.observation["text"] == "x"
        with pytest.raises(ConfigurationError, match="a mapping or a pydantic model, not a int"):
            await env.step(5)


async def test_a_first_call_connects(parrot: str) -> None:
    env = GenericEnvClient(parrot)
    assert (await env.reset()).observation["text"] == "ready"
    await env.close()


async def test_calls_at_the_same_time_each_get_their_own_reply(parrot: str) -> None:
    async with GenericEnvClient(parrot) as env:
        answers: dict[int, str] = {}

        async def say(number: int) -> None:
            result = await env.step({"text": str(number)})
            answers[number] = result.observation["text"]

        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(say, number)
        assert answers == {number: str(number) for number in range(60)}


async def test_sessions_are_their_own(parrot: str) -> None:
    async with GenericEnvClient(parrot) as one, GenericEnvClient(parrot) as other:
        await one.step({"text": "a"})
        assert (await one.state())["step_count"] == 1
        assert (await other.state())["step_count"] == 0


async def test_an_action_that_does_not_fit_names_its_fields_and_ends_nothing(parrot: str) -> None:
    async with GenericEnvClient(parrot) as env:
        with pytest.raises(ActionValidationError, match="text: Input should be a valid string") as caught:
            await env.step({"text": 5, "loud": True})
        assert [error["loc"] for error in caught.value.errors] == [["text"], ["loud"]]
        assert (await env.step({"text": "still here"})).observation["text"] == "still here"


async def test_an_action_that_json_cannot_express_is_told_before_it_is_sent(parrot: str) -> None:
    async with GenericEnvClient(parrot) as env:
        with pytest.raises(ActionValidationError, match=r"Cannot send the step: action\.text: "):
            await env.step({"text": object()})
        with pytest.raises(ConfigurationError, match=r"Cannot send the reset: arguments\.board: "):
            await env.reset(board=object())
        assert (await env.step({"text": "still here"})).observation["text"] == "still here"


async def test_an_environment_that_raises_is_an_execution_error_and_goes_on(parrot: str) -> None:
    async with GenericEnvClient(parrot) as env:
        with pytest.raises(EnvironmentExecutionError, match="failed in step: it bit me") as caught:
            await env.step({"raises": True})
        assert (caught.value.phase, caught.value.retryable) == ("step", True)
        assert (await env.state())["step_count"] == 1


async def test_a_full_server_is_known_when_connecting(lonely_parrot: str) -> None:
    async with GenericEnvClient(lonely_parrot):
        waiting = GenericEnvClient(lonely_parrot)
        with pytest.raises(SessionCapacityError) as caught:
            await waiting.connect()
        assert (caught.value.active_sessions, caught.value.max_sessions) == (1, 1)
    await waiting.connect()
    await waiting.close()


async def test_a_closed_client_leaves_a_free_slot(lonely_parrot: str) -> None:
    for _ in range(20):
        async with GenericEnvClient(lonely_parrot) as env:
            await env.reset()


async def test_a_failed_factory_is_known_when_connecting(serve: Callable[[Any], str]) -> None:
    def build() -> Any:
        raise OSError("no such game")

    with pytest.raises(EnvironmentFactoryError, match=r"'build' failed.*log tells why") as caught:
        await GenericEnvClient(serve(create_app(build, Action, Observation))).connect()
    assert caught.value.factory_name == "build"


async def test_a_late_reply_is_never_given_to_another_call(
    parrot: str, parrot_waits: Callable[[], bool], let_parrot_go: Callable[[], None]
) -> None:
    env = await GenericEnvClient(parrot).connect()
    with pytest.raises(DeadlineExceededError, match=r"No reply to step from .* within 0.2 s; the session is lost"):
        await env.step({"text": "late", "waits": True}, timeout_s=0.2)
    let_parrot_go()
    for _ in range(2):
        with pytest.raises(SessionLostError, match=r"no reply to its step came within 0\.2 s"):
            await env.step({"text": "next"})
    await env.close()


async def test_a_cancelled_call_ends_its_session(parrot: str, parrot_waits: Callable[[], bool]) -> None:
    env = await GenericEnvClient(parrot).connect()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(env.step, {"waits": True})
            await anyio.to_thread.run_sync(parrot_waits)
            scope.cancel()
    with pytest.raises(SessionLostError, match="its step was cancelled"):
        await env.reset()
    await env.close()


async def test_a_call_cancelled_before_its_turn_ends_nothing(
    parrot: str, parrot_waits: Callable[[], bool], let_parrot_go: Callable[[], None]
) -> None:
    async with GenericEnvClient(parrot) as env:
        results: list[str] = []

        async def first() -> None:
            results.append((await env.step({"text": "first", "waits": True})).observation["text"])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await anyio.to_thread.run_sync(parrot_waits)
            with anyio.move_on_after(0.05):
                await env.step({"text": "impatient"})
            let_parrot_go()
        assert results == ["first"]
        assert (await env.step({"text": "next"})).observation["text"] == "next"


async def test_closing_frees_a_call_that_waits(parrot: str, parrot_waits: Callable[[], bool]) -> None:
    env = await GenericEnvClient(parrot).connect()
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            with pytest.raises(SessionLostError):
                await env.step({"waits": True})

        tasks.start_soon(wait)
        await anyio.to_thread.run_sync(parrot_waits)
        await env.close()


async def test_a_closed_client_says_so(parrot: str) -> None:
    env = GenericEnvClient(parrot)
    await env.close()
    with pytest.raises(SessionStateError, match="the client is closed"):
        await env.connect()
    async with GenericEnvClient(parrot) as other:
        await other.reset()
    await other.close()
    with pytest.raises(SessionStateError, match="the client is closed"):
        await other.reset()


async def test_tools_are_listed_and_called(trained_parrot: str) -> None:
    async with GenericEnvClient(trained_parrot) as env:
        tools = await env.list_tools()
        assert [(each.name, each.description) for each in tools] == [("repeat", "Say it again.")]
        assert tools[0].input_schema["required"] == ["text"]
        action = {"type": "call_tool", "tool_name": "repeat", "arguments": {"text": "again"}}
        assert (await env.step(action)).observation["text"] == "again"
        with pytest.raises(ActionValidationError, match="Unknown tool: 'fly'"):
            await env.step({**action, "tool_name": "fly"})


async def test_an_environment_without_tools_lists_none(parrot: str) -> None:
    async with GenericEnvClient(parrot) as env:
        assert await env.list_tools() == []
