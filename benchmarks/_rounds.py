"""Interleaved rounds, and parts that are measured one by one.

A part is a table: its rows are measured in turn, round after round, so that a busy moment of the machine hits all of
them alike, and ratios between rows are of one run. Each part is kept in ``outputs/benchmarks/`` once it is done.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _load import Job, run_load
from _record import RESULTS, Target, commit, record, spread
from _servers import Serving, allow_many_files, public_versions, running

PARTS = Path(__file__).parent.parent / "outputs" / "benchmarks"

Figures = dict[str, Any]
Table = dict[str, Figures]


@dataclass(frozen=True)
class Options:
    """How a benchmark is run."""

    rounds: int
    quick: bool
    resume: bool
    only: tuple[str, ...] = ()

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds before figures are taken, and in which they are."""
        return (0.5, 1.0) if self.quick else (0.7, 2.5)


@dataclass(frozen=True)
class Row:
    """One row of a table: a server, and the load on it.

    Attributes:
        serving: The server.
        client: The package whose client puts the load.
        job: What the load does.
    """

    serving: Serving
    client: str
    job: Job = field(default_factory=lambda: Job("steps"))


@dataclass(frozen=True)
class Part:
    """A table to measure.

    Attributes:
        rows: Its rows by name.
        longer: How many times longer than usual its figures are taken: for rows with few, slow steps.
    """

    rows: Mapping[str, Row]
    longer: float = 1.0


def options_of(description: str, parts: Sequence[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="rounds of each part (3, or 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="short and rough; results/ stays as it is")
    parser.add_argument(
        "--resume", action="store_true", help="take the parts that are done already from where they lie"
    )
    parser.add_argument("--only", action="append", choices=parts, default=[], help="measure this part, resume the rest")
    given = parser.parse_args()
    rounds = given.rounds or (1 if given.quick else 3)
    return Options(rounds, given.quick, given.resume or bool(given.only), tuple(given.only))


def measure(name: str, parts: Mapping[str, Part | Callable[[Options], Table]], options: Options) -> dict[str, Table]:
    """Measure the parts of a benchmark, or take those that are done already, and return their tables."""
    allow_many_files()
    folder = PARTS / (f"{name}-quick" if options.quick else name)
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Table] = {}
    for part_name, part in parts.items():
        path = folder / f"{part_name}.json"
        if options.resume and path.exists() and part_name not in options.only:
            tables[part_name] = json.loads(path.read_text())
            continue
        if options.only and part_name not in options.only:
            continue
        begin = time.perf_counter()
        table = _measured(part_name, part, options) if isinstance(part, Part) else part(options)
        table["run"] = {
            "commit": commit(),
            "seconds": round(time.perf_counter() - begin, 1),
            "load_average_1min": round(os.getloadavg()[0], 2),
        }
        path.write_text(json.dumps(table))
        tables[part_name] = table
    return tables


def keep(
    name: str, results: Mapping[str, Any], targets: Sequence[Target], packages: Sequence[str], quick: bool
) -> None:
    """Print the results, and store them; a quick run's apart, since they are rough."""
    results = {**results, "public_versions": public_versions()}
    record(name, results, targets, packages, PARTS / f"{name}-quick" if quick else RESULTS)


def _measured(name: str, part: Part, options: Options) -> Table:
    taken: dict[str, list[dict[str, float]]] = {row: [] for row in part.rows}
    failed: dict[str, list[str]] = {row: [] for row in part.rows}
    warm_s, duration_s = options.seconds
    for number in range(options.rounds):
        for row_name, row in part.rows.items():
            job = replace(row.job, warm_s=warm_s * part.longer, duration_s=duration_s * part.longer)
            try:
                figures = once(replace(row, job=job))
            except Exception as error:  # one row that fails must not lose the others
                failed[row_name].append(f"{type(error).__name__}: {error}"[:500])
                print(f"{name} {row_name} {number}: {failed[row_name][-1]}", file=sys.stderr, flush=True)
                continue
            taken[row_name].append(figures)
            shown = {key: float(f"{value:.4g}") for key, value in list(figures.items())[:5]}
            print(f"{name} {row_name} {number}: {shown}", file=sys.stderr, flush=True)
    return {row: _summary(taken[row], failed[row]) for row in part.rows}


def once(row: Row) -> dict[str, float]:
    """Measure a row with a server of its own."""
    with running(row.serving) as server:
        return run_load(row.client, replace(row.job, url=server.url, server_pid=server.pid))


def _summary(taken: Sequence[dict[str, float]], failed: Sequence[str]) -> Figures:
    summary: Figures = {name: spread([figures[name] for figures in taken]) for name in (taken[0] if taken else {})}
    return {**summary, "failed_rounds": list(failed)} if failed else summary


def median(table: Table, row: str, figure: str) -> float | None:
    """The median of a row's figure; None where it was not measured."""
    found = table.get(row, {}).get(figure)
    return found["median"] if found else None


def ratio(table: Table, row: str, to: str, figure: str) -> float | None:
    """How many times another row's figure a row's is, by their medians; None where one was not measured."""
    above, below = median(table, row, figure), median(table, to, figure)
    return round(above / below, 3) if above is not None and below else None


def targets_of(aims: Sequence[tuple[str, float | None, str]], whys: Mapping[str, str] | None = None) -> list[Target]:
    """Targets of what was measured: each is what it says, the value, and what was aimed at.

    Args:
        aims: The targets. One without a value was not measured, and is left out.
        whys: For a target that may be missed, the sentence that says why.
    """
    targets: list[Target] = []
    for what, value, aim in aims:
        if value is None:
            continue
        target = Target(what, value, aim)
        why = "" if target.ok else (whys or {}).get(what, "not looked into yet")
        targets.append(replace(target, why=why))
    return targets
