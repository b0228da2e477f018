"""The echo in process: what it says, what it counts, and that it keeps an environment's promises."""

from __future__ import annotations

from typing import Any

from echo_env.models import CallToolAction, CallToolObservation
from echo_env.server.echo_environment import EchoEnvironment
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl import check_environment
from openenv_trl.types import ListToolsAction


def called(environment: EchoEnvironment, tool_name: str, **arguments: Any) -> CallToolObservation:
    return environment.step(CallToolAction(tool_name=tool_name, arguments=arguments))


def test_it_keeps_the_promises_of_an_environment() -> None:
    report = check_environment(EchoEnvironment)
    report.raise_for_errors()
    assert report.codes == ["seed-ignored"]


@given(message=st.text())
def test_whatever_it_is_told_it_says_back(message: str) -> None:
    environment = EchoEnvironment()
    environment.reset()
    said, counted = (called(environment, name, message=message) for name in ("echo_message", "echo_with_length"))
    assert said.result is not None
    assert said.result["data"] == message
    assert counted.result is not None
    assert counted.result["data"] == {"message": message, "length": len(message)}
    assert (said.reward, said.done, counted.reward, counted.done) == (None, False, None, False)


def test_every_step_counts_and_a_reset_begins_again() -> None:
    environment = EchoEnvironment()
    opening = environment.reset(episode_id="mine", seed=3, anything="else")
    assert (opening.reward, opening.done) == (0.0, False)
    assert opening.metadata == {"status": "ready", "message": "Echo environment ready!"}
    environment.step(ListToolsAction())
    called(environment, "echo_message", message="a")
    called(environment, "none")
    assert environment.state.model_dump() == {"episode_id": "mine", "step_count": 3}
    environment.reset()
    assert environment.state.step_count == 0
    assert environment.state.episode_id not in (None, "mine")


def test_a_wrong_call_is_told_and_breaks_nothing() -> None:
    environment = EchoEnvironment()
    environment.reset()
    unknown, wrong = called(environment, "shout", message="a"), called(environment, "echo_message", text="a")
    assert unknown.error is not None
    assert unknown.error.error_type == "tool_not_found"
    assert wrong.error is not None
    assert wrong.error.error_type == "invalid_args"
    assert "message" in wrong.error.message
    right = called(environment, "echo_message", message="a")
    assert right.error is None
