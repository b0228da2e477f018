"""The page of attacks says what was measured, of every case that there is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(Path(__file__).parent / "attacks")]

from _attack_table import markdown  # noqa: E402
from attack_cases import load_cases  # noqa: E402

RESULTS = json.loads((ROOT / "benchmarks" / "results" / "sandbox.json").read_text())["results"]["attacks"]


def test_the_page_is_what_the_results_say() -> None:
    assert (ROOT / "docs" / "sandbox-attacks.md").read_text() == markdown(RESULTS)


def test_every_case_was_made_and_none_got_through() -> None:
    assert RESULTS["cases"].keys() == load_cases().keys(), "run benchmarks/sandbox.py again"
    for name, row in RESULTS["cases"].items():
        assert [place for place, told in row["places"].items() if told["result"] == "breached"] == [], name
