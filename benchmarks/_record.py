"""How a measurement is stored: one JSON file for each benchmark, printed and written to ``benchmarks/results/``."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Target:
    """One figure that was aimed at.

    Attributes:
        what: The figure, with its unit.
        value: What was measured.
        target: What was aimed at, as "< 0.6" or ">= 4".
        why: A sentence on the cause, where the target was missed.
    """

    what: str
    value: float
    target: str
    why: str = ""

    @property
    def ok(self) -> bool:
        """Whether the value meets the target."""
        relation, _, bound = self.target.partition(" ")
        meets = {
            "<": self.value < float(bound),
            "<=": self.value <= float(bound),
            ">": self.value > float(bound),
            ">=": self.value >= float(bound),
        }
        return meets[relation]


def spread(values: Sequence[float], digits: int = 4) -> dict[str, float]:
    """Return the least, the median and the greatest of a figure over its rounds."""
    figures = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    return {name: round(value, digits) for name, value in figures.items()}


def record(
    name: str,
    results: Mapping[str, Any],
    targets: Sequence[Target],
    packages: Sequence[str],
    folder: Path = RESULTS,
) -> Path:
    """Print and store a benchmark's results.

    Args:
        name: The benchmark's name, and its file's.
        results: Raw figures, with units in their names.
        targets: What was aimed at.
        packages: Distributions whose versions matter to the figures.
        folder: Where the file is written.

    Returns:
        The file written.
    """
    stored = {
        "name": name,
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.system(),
            "load_average_1min": round(os.getloadavg()[0], 2),
        },
        "versions": {package: _version(package) for package in packages},
        "results": dict(results),
        "targets": [_target(target) for target in targets],
    }
    text = json.dumps(stored, indent=2, ensure_ascii=False)
    print(text)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(text + "\n")
    return path


def _target(target: Target) -> dict[str, Any]:
    fields = {key: value for key, value in asdict(target).items() if value != ""}
    return {**fields, "ok": target.ok}


def commit() -> str:
    """The commit that is checked out, or "unknown"."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
