"""From a package written for the public package to the same one for ours: its import lines, and nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

PACKAGES = Path(__file__).parent / "packages"

# The rule of the README, whatever module is imported.
_RULE = (re.compile(r"^(\s*(?:from|import)\s+)openenv\.core\b"), r"\1openenv_trl.compat")


def ported(name: str, into: Path) -> Path:
    """Copy a package with its import lines changed, and return its folder."""
    folder = into / name
    shutil.copytree(PACKAGES / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.rglob("*.py"):
        path.write_text("".join(_changed(line) for line in path.read_text().splitlines(keepends=True)))
    return folder


def changed_lines(name: str, folder: Path) -> list[tuple[str, str]]:
    """Return the lines that differ between a package and its copy, each with what it became."""
    found: list[tuple[str, str]] = []
    for path in sorted((PACKAGES / name).rglob("*.py")):
        before = path.read_text().splitlines()
        after = (folder / path.relative_to(PACKAGES / name)).read_text().splitlines()
        found += [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    return found


def _changed(line: str) -> str:
    pattern, ours = _RULE
    return pattern.sub(ours, line)
