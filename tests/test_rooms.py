"""Rooms import downwards only: what import-linter's contract in pyproject.toml says."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_room_imports_one_above_it_or_beside_it() -> None:
    linter = Path(sysconfig.get_path("scripts")) / "lint-imports"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Contracts: 2 kept, 0 broken." in done.stdout
