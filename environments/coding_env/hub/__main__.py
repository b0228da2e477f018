"""Writes tasks to a file of JSON lines: ``python -m coding_env.hub --help``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from coding_env.hub import SHAPES, TestLimits, built_in_rows, load_tasks
from coding_env.server.tasks import LEVELS
from openenv_trl.errors import ConfigurationError


def main(arguments: list[str] | None = None) -> int:
    """Write the file that the arguments ask for; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m coding_env.hub",
        description="Write tasks for the coding environment to a file of JSON lines: dataset_name of an experiment.",
    )
    parser.add_argument("name", nargs="?", help="a data set on the Hub, or a file; without it the built-in tasks")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    parser.add_argument("--split", default="train")
    parser.add_argument("--config", help="the data set's configuration, where it has several")
    parser.add_argument("--shape", choices=list(SHAPES), help="told by the columns if not given")
    parser.add_argument("--most", type=int, help="tasks at most")
    parser.add_argument("--max-tests", type=int, default=TestLimits().max_tests, help="tests of a task at most")
    parser.add_argument("--level", action="append", choices=LEVELS, help="of the built-in tasks; may be repeated")
    given = parser.parse_args(arguments)
    if given.name and given.level:
        parser.error("--level is for the built-in tasks: leave it out, or the data set's name")
    try:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        if given.out.is_dir():
            raise IsADirectoryError(f"{given.out} is a folder")
        if given.name:
            rows = load_tasks(
                given.name,
                split=given.split,
                config=given.config,
                shape=given.shape,
                limits=TestLimits(max_tests=max(given.max_tests, 1)),
                most=given.most,
            )
        else:
            rows = built_in_rows(given.level or LEVELS)[: given.most]
        with given.out.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps({key: value for key, value in row.items() if key != "solution"}) + "\n")
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"--out {given.out} cannot be written: {error}. Name a file in a folder of yours.", file=sys.stderr)
        return 2
    print(f"{len(rows)} tasks in {given.out}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
