"""The public package's own acceptance test, ``openenv validate --url``, on our servers: all of its criteria pass."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(("environment", "mode"), [("probe", "simulation"), ("production", "production")])
def test_their_validation_passes(environment: str, mode: str, addresses: Any, their_python: Path) -> None:
    command = [their_python.with_name("openenv"), "validate", "--url", addresses["ours"][environment], "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    report = json.loads(done.stdout)
    assert {each["id"]: each["passed"] for each in report["criteria"] if not each["passed"]} == {}
    assert (report["mode"], report["passed"], len(report["criteria"])) == (mode, True, 6)
    assert done.returncode == 0
