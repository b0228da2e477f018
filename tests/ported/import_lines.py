"""From a package written for the public package to the same one for ours: its import lines, and nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

PACKAGES = Path(__file__).parent / "packages"

# The first that fits.
_MODULES = (
    (r"openenv\.core\.env_server(\.\w+)*", "openenv_trl.env_server"),
    (r"openenv\.core\.client_types", "openenv_trl.types"),
    (r"openenv\.core\.(env_client|sync_client|generic_client|mcp_client)", "openenv_trl.client"),
    (r"openenv\.core\.rubrics(\.\w+)*", "openenv_trl.rubrics"),
    (r"openenv(\.core)?", "openenv_trl"),
)


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
    for module, ours in _MODULES:
        changed = re.sub(rf"^(\s*from\s+){module}(\s+import\s)", rf"\g<1>{ours}\g<{_groups(module) + 2}>", line)
        if changed != line:
            return changed
    return line


def _groups(module: str) -> int:
    return re.compile(module).groups
