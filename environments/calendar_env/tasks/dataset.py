"""Rows to train and to evaluate on: one for each family, level and seed.

    Dataset.from_list(rows(levels=["easy"], seeds=seeds_of("train", 2000)))

A row's columns other than ``prompt`` are arguments of the environment's ``reset``, so the rows go through
`recipes/grpo.py` as they are (``dataset_name: tasks.jsonl``; `python -m calendar_env.tasks.dataset` writes one). Seeds
for training and for evaluation never meet.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from calendar_env.tasks import FAMILIES, LEVELS

INSTRUCTION = (
    "You look after a company's calendars for one of its people, with tools that are named as in the Google "
    "Calendar API. "
    "What you are asked to do follows."
)
"""What every row's prompt says; the task itself comes with the first observation."""

FIRST_SEEDS = {"train": 0, "test": 1_000_000}
"""Where the seeds of each split begin."""


def seeds_of(split: Literal["train", "test"], count: int) -> range:
    """The first seeds of a split.

    Args:
        split: "train" or "test".
        count: How many, at most a million.

    Raises:
        ValueError: There is no such split, or it has not so many seeds.
    """
    if split not in FIRST_SEEDS:
        raise ValueError(f"There is no split {split!r}; there are: {', '.join(FIRST_SEEDS)}.")
    if not 0 <= count <= 1_000_000:
        raise ValueError(f"A split has a million seeds; {count} were asked for.")
    return range(FIRST_SEEDS[split], FIRST_SEEDS[split] + count)


def rows(
    families: Sequence[str] = FAMILIES,
    levels: Sequence[str] = LEVELS,
    seeds: Iterable[int] = range(100),
) -> list[dict[str, Any]]:
    """One row for each seed, family and level, in that order, so that a part of the rows is as varied as the whole.

    Args:
        families: Names from `FAMILIES`.
        levels: Names from `LEVELS`.
        seeds: Seeds of the tasks, such as `seeds_of` gives them.

    Returns:
        Rows with ``prompt`` (messages) and the arguments of reset: ``task``, ``level`` and ``task_seed``.

    Raises:
        ValueError: There is no such family or level.
    """
    for name in families:
        if name not in FAMILIES:
            raise ValueError(f"There is no task family {name!r}; there are: {', '.join(FAMILIES)}.")
    for name in levels:
        if name not in LEVELS:
            raise ValueError(f"There is no level {name!r}; there are: {', '.join(LEVELS)}.")
    return [
        {
            "prompt": [{"role": "user", "content": INSTRUCTION}],
            "task": family,
            "level": level,
            "task_seed": seed,
        }
        for seed in seeds
        for family in families
        for level in levels
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write rows as JSON lines."""
    parser = argparse.ArgumentParser(prog="python -m calendar_env.tasks.dataset", description=main.__doc__)
    parser.add_argument("file", type=Path, help="the file to write, such as tasks.jsonl")
    parser.add_argument("--split", choices=sorted(FIRST_SEEDS), default="train")
    parser.add_argument("--seeds", type=int, default=100, help="seeds of each family and level")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES, metavar="FAMILY")
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=LEVELS, metavar="LEVEL")
    options = parser.parse_args(arguments)
    lines = [json.dumps(row) for row in rows(options.families, options.levels, seeds_of(options.split, options.seeds))]
    options.file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} rows in {options.file}")


if __name__ == "__main__":
    main()
