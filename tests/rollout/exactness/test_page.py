"""The page on exactness says what was measured, for all templates that there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "exactness.md"
WAYS = {
    "ours": "this package",
    "retokenised": "decoding and encoding again at each turn",
    "public": "the public package's `build_harness_rollout_func`",
}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / "results" / "token_exactness.json").read_text())["results"]


def section(name: str) -> str:
    return PAGE.read_text().split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0]


def templates_table(templates: dict[str, Any]) -> str:
    """One row for templates of equal figures and kin: a training variant stands with its original."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, figures in templates.items():
        shown = dict(figures)
        shown["drops_thoughts_in_texts"] = "dropped" if figures["drops_thoughts_in_texts"] else "kept"
        rows.setdefault(tuple(shown.values()), []).append(name)
    lines = [
        "| template | tool calls | several calls | texts | parser | earlier thoughts in texts |",
        "|---|---|---|---|---|---|",
        *(f"| {', '.join(sorted(names))} | {' | '.join(cells)} |" for cells, names in sorted(rows.items())),
    ]
    return "\n".join(lines) + "\n"


def bridges_table(bridges: dict[str, Any]) -> str:
    lines = ["| mean difference of log-probs per token | 1 turn | 3 turns | 6 turns |", "|---|---|---|---|"]
    for name, figures in bridges.items():
        cells = [f"{figures[f'{turns}_turns']['mean_abs_logprob_difference']:.4f}" for turns in (1, 3, 6)]
        lines.append(f"| {WAYS[name]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_page_shows_the_measured_tables(results: dict[str, Any]) -> None:
    assert section("templates") == templates_table(results["templates"])
    assert section("bridges") == bridges_table(results["bridges"])


def test_every_template_was_measured(results: dict[str, Any]) -> None:
    import importlib.util

    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        pytest.skip("trl is not installed")
    found = {path.stem for path in (Path(spec.origin).parent / "chat_templates").glob("*.jinja")}
    assert set(results["templates"]) == found, "run benchmarks/token_exactness.py, then update docs/exactness.md"
    assert all("not" not in row["tool_calls"] + row["texts"] for row in results["templates"].values())


def test_training_contexts_are_sampling_contexts_in_the_stored_figures(results: dict[str, Any]) -> None:
    for figures in results["bridges"]["ours"].values():
        assert figures["mean_abs_logprob_difference"] < 1e-5
        assert figures["drift"] == 0.0
