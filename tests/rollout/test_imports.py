"""The rooms stay light: they are imported by whoever only reads trajectories."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "transformers", "trl", "tokenizers", "jinja2", "pyarrow", "fastapi", "uvicorn", "numpy")


def test_rollout_and_rewards_import_no_heavy_module() -> None:
    code = "import sys, openenv_trl.rollout, openenv_trl.rewards; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(HEAVY).intersection(loaded)
