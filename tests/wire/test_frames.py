from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from openenv_trl.errors import ProtocolError
from openenv_trl.wire.faults import Fault
from openenv_trl.wire.frames import Reply, Request, encode_reply, encode_request, parse_reply, parse_request
from openenv_trl.wire.messages import MESSAGE_MODELS

small_values = st.none() | st.integers() | st.text(max_size=3) | st.dictionaries(st.text(max_size=3), st.integers())
messages = st.dictionaries(st.sampled_from(["type", "data", "extra"]), small_values) | st.fixed_dictionaries(
    {"type": st.sampled_from(sorted(MESSAGE_MODELS))},
    optional={"data": small_values, "extra": st.integers()},
)


@given(messages)
def test_a_message_is_taken_exactly_where_its_model_takes_it(message: dict[str, Any]) -> None:
    parsed = parse_request(json.dumps(message))
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in MESSAGE_MODELS:
        assert isinstance(parsed, Fault)
        assert parsed.code == "UNKNOWN_TYPE"
        return
    model = MESSAGE_MODELS[kind]
    errors = _errors(model, message)
    if errors is None:
        assert parsed == Request(kind, getattr(model.model_validate(message), "data", {}))  # type: ignore[arg-type]
    else:
        assert isinstance(parsed, Fault)
        assert parsed.code == "VALIDATION_ERROR"
        assert json.loads(parsed.encode())["data"]["errors"] == errors


def _errors(model: type[BaseModel], message: dict[str, Any]) -> Any:
    try:
        model.model_validate(message)
    except ValidationError as error:
        return json.loads(error.json())
    return None


@given(st.text())
def test_any_text_is_a_request_or_a_fault(text: str) -> None:
    parsed = parse_request(text)
    assert isinstance(parsed, Request) or json.loads(parsed.encode())["type"] == "error"


@given(st.text())
def test_any_answer_is_a_reply_a_fault_or_a_protocol_error(text: str) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(parse_reply(text), Reply | Fault)


@pytest.mark.parametrize(
    ("text", "found"),
    [("[1]", "an array"), ('"x"', "a string"), ("null", "null"), ("5", "a number"), ("true", "a boolean")],
)
def test_json_that_is_no_object_is_told_what_it_is(text: str, found: str) -> None:
    fault = parse_request(text)
    assert isinstance(fault, Fault)
    assert fault.code == "VALIDATION_ERROR"
    assert fault.message == f"Invalid message: expected a JSON object, got {found}"
    assert len(fault.details["errors"]) == 1


@pytest.mark.parametrize("kind", ["reset", "step", "mcp"])
def test_a_request_arrives_as_it_was_sent(kind: Any) -> None:
    assert parse_request(encode_request(kind, {"a": 1}).decode()) == Request(kind, {"a": 1})


@pytest.mark.parametrize("kind", ["state", "close"])
def test_a_request_without_data_arrives_as_it_was_sent(kind: Any) -> None:
    assert parse_request(encode_request(kind).decode()) == Request(kind, {})


def test_a_reply_arrives_as_it_was_sent() -> None:
    assert parse_reply(encode_reply("state", {"step_count": 1})) == Reply("state", {"step_count": 1})


@pytest.mark.parametrize("text", ["hello", "[]", '{"type":"pong"}', '{"type":"state","data":5}', b"\xff\xfe"])
def test_what_no_openenv_server_sends_is_a_protocol_error(text: str | bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_reply(text)
