"""What environment variables give, and what is said of a variable that is none."""

from __future__ import annotations

import logging

import pytest

from openenv_trl.server.settings import AppSettings


def test_a_near_miss_of_a_settings_name_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    variables = {"OPENENV_TRL_STEPTIMEOUT_S": "5"}
    assert AppSettings.from_environment(variables).step_timeout_s is None
    assert AppSettings.from_environment(variables).step_timeout_s is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "OPENENV_TRL_STEPTIMEOUT_S has no effect: did you mean OPENENV_TRL_STEP_TIMEOUT_S?" in record.getMessage()


@pytest.mark.parametrize("name", ["WORKERS", "WORKER_PLACE", "PRELOAD", "REQUIRE_DOCKER", "TOKEN", "SOMETHING_ELSE"])
def test_other_variables_are_no_near_misses(name: str, caplog: pytest.LogCaptureFixture) -> None:
    AppSettings.from_environment({f"OPENENV_TRL_{name}": "0"})
    assert not caplog.records
