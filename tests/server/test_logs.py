"""What a server process writes about itself."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.server.logs import SESSION_FIELDS, JsonLines, about


def record(message: str, *arguments: object, **extra: str) -> logging.LogRecord:
    made = logging.LogRecord("openenv_trl.server", logging.WARNING, __file__, 1, message, arguments, None)
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_a_record_is_one_json_object_on_one_line() -> None:
    line = JsonLines().format(record("Session %s\nwas lost", "s-1", **about("s-1", episode_id="e-1", call="step")))
    assert "\n" not in line
    told = json.loads(line)
    assert told.pop("time").endswith("+00:00")
    assert told == {
        "level": "warning",
        "logger": "openenv_trl.server",
        "message": "Session s-1\nwas lost",
        "session_id": "s-1",
        "episode_id": "e-1",
        "call": "step",
    }


def test_an_exception_is_told_with_its_traceback() -> None:
    made = record("raised")
    try:
        raise ValueError("the machine broke")
    except ValueError:
        made.exc_info = sys.exc_info()
    told = json.loads(JsonLines().format(made))
    assert "Traceback" in told["exception"]
    assert "the machine broke" in told["exception"]


@given(st.text(), st.text(), st.text())
def test_any_text_stays_one_line_that_can_be_read_back(message: str, session_id: str, call: str) -> None:
    line = JsonLines().format(record("%s", message, **about(session_id, call=call)))
    assert len(line.splitlines()) == 1
    told = json.loads(line)
    assert told["message"] == message
    assert told.get("session_id", "") == session_id


def test_what_is_not_known_is_left_out() -> None:
    assert about() == {}
    assert about("s", episode_id=None, call="", transport="ws") == {"session_id": "s", "transport": "ws"}
    assert set(about("s", episode_id="e", call="c", transport="t")) == set(SESSION_FIELDS)


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_the_server_process_writes_in_the_format_that_is_asked_for(log_format: str, tmp_path: Path) -> None:
    tmp_path.joinpath("noisy.py").write_text(
        "import logging\nlogging.getLogger('noisy').info('imported %d', 1)\nraise SystemExit(3)\n"
    )
    command = [sys.executable, "-m", "openenv_trl.server", "noisy:app", "--log-format", log_format]
    answer = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    first = answer.stderr.splitlines()[0]
    if log_format == "json":
        told = json.loads(first)
        assert (told["level"], told["logger"], told["message"]) == ("info", "noisy", "imported 1")
    else:
        assert first == "INFO: noisy: imported 1"
