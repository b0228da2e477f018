"""What the README shows is what happens: its matches, its tools, its variables and its figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from openspiel_env.exact import exact_returns
from openspiel_env.server.moves import FIXED_MOVES, MOVE_TOOLS
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.settings import ENVIRONMENT_VARIABLES

from openenv_trl.errors import ActionValidationError

PACKAGE = Path(__file__).resolve().parents[1]
README = (PACKAGE / "README.md").read_text(encoding="utf-8")


def test_the_match_of_catch_goes_as_shown() -> None:
    shown = README.split("```")[1].strip("\n").split("\n")
    environment = environment_class("catch")()
    seen = environment.reset(seed=0)
    assert shown[0].strip() == seen.message
    for line in [*shown[1:-2], *["stay()"] * 4, shown[-1]]:
        word, _, rest = line.partition("()")
        seen = environment.play_text(word)
        text, _, reward = rest.partition("   reward ")
        if text:
            assert text.strip() == seen.message
            assert reward == f"{seen.reward:g}{', done' if seen.done else ''}"
    assert seen.done


def test_the_match_of_tic_tac_toe_goes_as_shown() -> None:
    environment = environment_class("tic_tac_toe")()
    environment.reset(seed=7)
    message = environment.play_text("centre").message
    assert message == "\n".join(line[28:] for line in README.split("```")[3].strip("\n").split("\n")[:5])
    with pytest.raises(
        ActionValidationError, match=r"The move 'top left' is not legal now\. Your moves: top, top right"
    ):
        environment.play_text("top left")


def test_the_tools_are_those_in_the_table() -> None:
    rows = re.findall(
        r"^\| (`[^|]+) \| ([^|]+) \|$", README.partition("## Tools")[2].partition("\n## ")[0], re.MULTILINE
    )
    told = {name: re.findall(r"`(\w+)\(", tools) for names, tools in rows for name in re.findall(r"`(\w+)`", names)}
    squares = told.pop("tic_tac_toe")
    assert squares == ["play"]
    assert all(f'"{square}"' in README for square in FIXED_MOVES["tic_tac_toe"])
    assert {name: set(tools) for name, tools in told.items()} == {
        name: set(tools) for name, tools in MOVE_TOOLS.items()
    }


def test_the_variables_are_those_in_the_table() -> None:
    told = set(re.findall(r"^\| `([A-Z_]+)`", README, re.MULTILINE))
    assert told == {*ENVIRONMENT_VARIABLES, "OPENSPIEL_GAME", "MAX_CONCURRENT_ENVS"}


def test_the_figures_are_those_in_the_tables_and_in_the_experiment() -> None:
    figures = {
        "`catch` (10 rows, 5 columns)": exact_returns("catch"),
        "`cliff_walking` (4 rows, 8 columns, 100 moves)": exact_returns("cliff_walking"),
        "`tic_tac_toe`, first, against random play": exact_returns("tic_tac_toe"),
        "`tic_tac_toe`, second, against random play": exact_returns("tic_tac_toe", agent_player=1),
    }
    for title, exact in figures.items():
        row = re.search(rf"^\| {re.escape(title)} \| (\S+) \| (\S+) \|$", README, re.MULTILINE)
        assert row is not None, title
        for told, value in zip(row.groups(), (exact.random, exact.best), strict=True):
            digits = len(told.partition(".")[2])
            assert float(told) == pytest.approx(round(value, digits))
    experiment = yaml.safe_load((PACKAGE.parents[1] / "configs" / "catch_cpu.yaml").read_text(encoding="utf-8"))
    catch = exact_returns("catch")
    assert experiment["reference_returns"] == {
        "random": pytest.approx(catch.random),
        "optimal": pytest.approx(catch.best),
    }
