from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from openenv_trl.errors import (
    ActionValidationError,
    EnvironmentExecutionError,
    EnvironmentFactoryError,
    ProtocolError,
    SessionCapacityError,
    SessionLostError,
    SessionNotFoundError,
)
from openenv_trl.wire.faults import Fault, error_of, fault_of, validation_fault
from openenv_trl.wire.field_errors import MOST_ERRORS, error_list
from openenv_trl.wire.frames import parse_reply


class Guess(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def small(cls, number: int) -> int:
        if number > 9:
            raise ValueError("too large")
        return number


def _over_the_wire(error: Exception, phase: str) -> Exception:
    fault = parse_reply(fault_of(error).encode())
    assert isinstance(fault, Fault)
    return error_of(fault, phase=phase)


def test_a_full_server_tells_how_full() -> None:
    error = _over_the_wire(SessionCapacityError(3, 4), "connect")
    assert isinstance(error, SessionCapacityError)
    assert (error.active_sessions, error.max_sessions) == (3, 4)


def test_a_full_server_that_tells_only_in_words_is_understood() -> None:
    error = error_of(Fault("Server at capacity: 8/8 sessions active.", "CAPACITY_REACHED"), phase="reset")
    assert isinstance(error, SessionCapacityError)
    assert (error.active_sessions, error.max_sessions) == (8, 8)


def test_a_failed_factory_keeps_its_name() -> None:
    error = _over_the_wire(EnvironmentFactoryError("Broken"), "connect")
    assert isinstance(error, EnvironmentFactoryError)
    assert error.factory_name == "Broken"


def test_wrong_fields_of_an_action_arrive_by_name() -> None:
    with pytest.raises(ValidationError) as caught:
        Guess.model_validate({"number": "x"})
    error = error_of(validation_fault(caught.value), phase="step")
    assert isinstance(error, ActionValidationError)
    assert [e["loc"] for e in error.errors] == [("number",)]
    assert "number: Input should be a valid integer" in str(error)


def test_an_error_raised_by_a_validator_can_be_sent() -> None:
    with pytest.raises(ValidationError) as caught:
        Guess.model_validate({"number": 10})
    assert validation_fault(caught.value).details["errors"][0]["ctx"] == {"error": "too large"}
    assert b"too large" in validation_fault(caught.value).encode()


def test_pydantics_own_error_out_of_an_environment_is_the_environments() -> None:
    with pytest.raises(ValidationError) as caught:
        Guess.model_validate({})
    fault = fault_of(caught.value)
    assert fault.code == "EXECUTION_ERROR"
    assert fault.message.startswith(
        "The environment's own code refused a value; what the client sent had been accepted: "
    )


def test_a_validation_fault_of_another_servers_reset_is_the_environments() -> None:
    error = error_of(Fault("Invalid message", "VALIDATION_ERROR", {"errors": []}), phase="reset")
    assert isinstance(error, EnvironmentExecutionError)


def test_an_exception_without_text_is_told_by_its_name() -> None:
    assert fault_of(KeyError()).message == "KeyError"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("Unknown session_id: x", "SESSION_ERROR"), SessionNotFoundError),
        (Fault("'text'", "SESSION_ERROR"), SessionLostError),
        (Fault("Unknown message type: mcp", "UNKNOWN_TYPE"), ProtocolError),
        (Fault("Invalid JSON: ", "INVALID_JSON"), ProtocolError),
        (Fault("?", "SOMETHING_NEW"), ProtocolError),
    ],
)
def test_each_code_has_its_error(fault: Fault, kind: type[Exception]) -> None:
    assert type(error_of(fault, phase="step")) is kind


@pytest.mark.parametrize("errors", [None, 5, ["x"], [{"msg": "m"}]])
def test_a_malformed_list_of_errors_does_no_harm(errors: Any) -> None:
    error = error_of(Fault("Invalid message", "VALIDATION_ERROR", {"errors": errors}), phase="step")
    assert isinstance(error, ActionValidationError)


class Wide(BaseModel):
    model_config = ConfigDict(extra="forbid")

    first: int
    second: int


def _errors_of(value: Any) -> list[dict[str, Any]]:
    with pytest.raises(ValidationError) as caught:
        Wide.model_validate(value)
    return error_list(caught.value)


def test_as_many_errors_are_told_as_can_be_read() -> None:
    errors = _errors_of({f"field {index}": index for index in range(300)})
    assert len(errors) == MOST_ERRORS
    assert errors[-1] == {"type": "too_many_errors", "loc": [], "msg": "203 more errors.", "input": None}
    assert _errors_of(dict.fromkeys(map(str, range(5000)), 0))[0]["msg"] == "5002 errors: more than can be told."


@pytest.mark.parametrize(
    "long",
    ["x" * 20_000, ["x"] * 20_000, {"x": ["y" * 20_000]}, {str(n): 0 for n in range(20_000)}, [[["x" * 5000]] * 3]],
    ids=["text", "list", "nested", "dict", "together"],
)
def test_a_long_input_is_not_sent_back_with_each_error(long: Any) -> None:
    errors = _errors_of({"first": long})
    assert [each["input"] for each in errors] == ["(left out: it is long)"] * 2
    assert _errors_of({"first": ["short"]})[0]["input"] == ["short"]


def test_a_server_that_shuts_down_says_so_to_whoever_wants_a_session() -> None:
    error = SessionCapacityError(1, 4, "The server is shutting down and takes no new sessions.", draining=True)
    fault = fault_of(error)
    assert (fault.code, fault.details["reason"]) == ("CAPACITY_REACHED", "draining")
    told = error_of(fault, phase="connect")
    assert isinstance(told, SessionCapacityError)
    assert (told.draining, str(told)) == (True, str(error))
