"""docs/mcp.md: the program of a trainer and an agent in one environment runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx2", reason="the page's program is one for mcp 2.x")

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_trainer_and_an_agent_share_an_environment_as_the_page_says(stage: Any, workers: str) -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "mcp.md").read_text(), re.MULTILINE | re.DOTALL)
    (program,) = [each for each in programs if "env.session_id" in each]
    tokens = {"OPENENV_TRL_TOKEN": stage.token, "OPENENV_TRL_AGENT_TOKEN": stage.agent_token}
    environment = {**os.environ, **tokens, "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-m", "openenv_trl.server", "environments/blackjack_env", "--port", "0"]
    with subprocess.Popen(
        [*command, "--workers", workers], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            url = next(
                found.group() for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+", line))
            )
            program = program.replace("http://localhost:8000", url)
            done = subprocess.run(
                [sys.executable, "-c", program],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            server.terminate()
    assert done.returncode == 0, done.stderr
    agent, trainer = done.stdout.splitlines()
    assert agent.startswith("agent: {")
    assert '"done":true' in agent
    assert trainer.startswith("trainer: {")
    assert "'step_count': 1" in trainer
