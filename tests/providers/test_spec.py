"""Settings of providers and pools that cannot work are refused when they are read, whatever runs the servers."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers import ProcessProvider
from openenv_trl.providers.replica_pool import PoolSettings
from openenv_trl.providers.settings import Settings
from openenv_trl.providers.spec import ServerSpec
from openenv_trl.providers.specs import PROVIDER_TYPES, read_spec

STARTERS: list[dict[str, Any]] = [
    {"type": "process", "environment": "module:app"},
    {"type": "uv", "project": "environments/echo_env"},
    {"type": "docker", "image": "echo-env"},
    {"type": "swarm", "image": "echo-env"},
    {"type": "kubernetes", "image": "echo-env"},
    {"type": "daytona", "image": "echo-env"},
]
ALL_TYPES: list[dict[str, Any]] = [
    *STARTERS,
    {"type": "space", "space": "owner/name"},
    {"type": "remote", "urls": ["http://127.0.0.1:8000"]},
]
BY_TYPE = pytest.mark.parametrize("settings", STARTERS, ids=lambda settings: settings["type"])


@BY_TYPE
@pytest.mark.parametrize(
    ("variables", "message"),
    [({"A=B": "x"}, "'A=B'"), ({"": "x"}, "empty"), ({"A\0": "x"}, "NUL"), ({"A": "x\0y"}, "NUL")],
    ids=["equals", "empty", "nul-in-name", "nul-in-value"],
)
def test_a_variable_that_no_process_can_be_given_is_refused(settings, variables, message):
    with pytest.raises(ConfigurationError, match=f"env_vars.*{message}"):
        read_spec({**settings, "env_vars": variables})


def test_a_provider_made_by_its_fields_refuses_them_as_a_settings_file_does():
    with pytest.raises(ConfigurationError, match=r"env_vars.*'A=B'"):
        ProcessProvider("module:app", env_vars={"A=B": "x"})


@BY_TYPE
def test_variables_of_numbers_and_switches_are_read_as_text(settings):
    spec = read_spec({**settings, "env_vars": {"A": 1, "B": True, "C": ""}})
    assert spec.env_vars == {"A": "1", "B": "true", "C": ""}


def _numeric_fields(model: type[Settings]) -> list[str]:
    def numeric(annotation: Any) -> bool:
        return annotation in (int, float) or any(map(numeric, get_args(annotation)))

    return [name for name, field in model.model_fields.items() if numeric(field.annotation)]


def test_every_type_of_provider_is_looked_at():
    assert {settings["type"] for settings in ALL_TYPES} == set(PROVIDER_TYPES)


@pytest.mark.parametrize("settings", ALL_TYPES, ids=lambda settings: settings["type"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, True, 10**30, "9" * 400, 10**400], ids=repr)
def test_no_numeric_field_of_a_provider_takes_what_is_no_number_or_an_absurd_one(settings, value):
    fields = _numeric_fields(type(read_spec(settings)))
    assert {"replicas", "ready_timeout_s", "stop_grace_s"} <= set(fields)
    for field in fields:
        with pytest.raises(ConfigurationError, match=field):
            read_spec({**settings, field: value})


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, True, False, 10**30], ids=repr)
def test_no_numeric_field_of_a_pool_takes_them_either(value):
    fields = _numeric_fields(PoolSettings)
    assert len(fields) == len(PoolSettings.model_fields)
    for field in fields:
        with pytest.raises(ValidationError) as caught:
            PoolSettings.model_validate({field: value})
        assert [error["loc"] for error in caught.value.errors()] == [(field,)]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("stop_grace_s", math.inf, "stop_grace_s: Input should be a finite number"),
        ("memory", True, "memory: true is no number, and a number is meant"),
        ("memory", "9" * 400, "memory: the size is too large"),
        ("memory", "2000000t", "memory: the size is too large"),
        ("cpus", 1e-10, r"cpus: .*greater than or equal to 0\.001"),
        ("cpus", 1e30, "cpus: the number is too large; it can be 1000000000 at most"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_the_error_says_what_is_wrong_with_the_number(field, value, message):
    with pytest.raises(ConfigurationError, match=message):
        read_spec({"type": "docker", "image": "echo-env", field: value})


def test_sizes_and_switches_and_numbers_as_text_are_read_as_before():
    settings = {"type": "docker", "image": "echo-env", "memory": "8T", "read_only": True, "cpus": "1.5", "gpus": "all"}
    spec = read_spec(settings)
    assert isinstance(spec, ServerSpec)
    given = spec.model_dump()
    assert (given["memory"], given["read_only"], given["cpus"], given["gpus"]) == (8 * 1024**4, True, 1.5, "all")


CONTAINERS = pytest.mark.parametrize("kind", ["docker", "swarm", "kubernetes", "daytona"])


@CONTAINERS
def test_a_container_is_described_as_a_compose_file_does(kind):
    settings = {"type": kind, "image": "echo-env", "command": "sleepy '1 2' x", "env_vars": ["A=1", "B=c=d", "C="]}
    spec: Any = read_spec(settings)
    assert spec.command == ["sleepy", "1 2", "x"]
    assert spec.env_vars == {"A": "1", "B": "c=d", "C": ""}


@CONTAINERS
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("command", "sleepy '1", r"command: .*cannot be split into words .*write a list of them"),
        ("command", "  ", r"command: it is empty: write the program"),
        ("env_vars", ["A"], r"env_vars: 'A' is no variable: write NAME=VALUE"),
        ("env_vars", {"A": None}, r"env_vars.A: there is no value: write a text, such as '1', or '' for an empty one"),
        ("lease_s", "1m", r"lease_s: '1m' is no number of seconds: write 60\."),
        ("ready_timeout_s", "1.5 h", r"ready_timeout_s: '1.5 h' is no number of seconds: write 5400\."),
        ("memory", 512, r"memory: is '512m' meant\? 512 bytes is too little for any server; 6m is the least"),
        ("memory", "512k", r"memory: 524288 bytes is too little for any server; 6m is the least"),
    ],
)
def test_a_common_slip_is_told_with_what_to_write(kind, field, value, message):
    with pytest.raises(ConfigurationError, match=message):
        read_spec({"type": kind, "image": "echo-env", field: value})


@pytest.mark.parametrize("name", ["my env/1", "", "-env", "wörld"])
def test_a_name_that_no_container_can_have_is_refused_with_what_it_may_be(name):
    with pytest.raises(ConfigurationError, match=r"name: .* can be no container's name: use letters, digits, '_'"):
        read_spec({"type": "docker", "image": "echo-env", "name": name})
