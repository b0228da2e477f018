"""Settings of providers and pools that cannot work are refused when they are read, whatever runs the servers."""

from __future__ import annotations

from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers import ProcessProvider
from openenv_trl.providers.specs import read_spec

STARTERS: list[dict[str, Any]] = [
    {"type": "process", "environment": "module:app"},
    {"type": "uv", "project": "environments/echo_env"},
    {"type": "docker", "image": "echo-env"},
    {"type": "swarm", "image": "echo-env"},
    {"type": "kubernetes", "image": "echo-env"},
    {"type": "daytona", "image": "echo-env"},
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
