"""The programs and files on docs/runs.md are taken by the package as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from openenv_trl.training import EnvironmentArguments, EnvironmentRollout

PAGE = (Path(__file__).parents[2] / "docs" / "runs.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_programs_run_up_to_the_trainer() -> None:
    for program in blocks("python"):
        names: dict[str, Any] = {}
        exec(program, names)
        rollout = names["rollout"]
        assert isinstance(rollout, EnvironmentRollout)
        rollout.close()
    assert names  # the last one


def test_a_mixture_of_the_page_has_the_weights_of_the_page() -> None:
    names: dict[str, Any] = {}
    exec(next(program for program in blocks("python") if "mix_datasets" in program), names)
    assert [list(names["dataset"]["environment"]).count(name) for name in ("blackjack", "catch")] == [2000, 1000]


def test_the_files_are_experiments() -> None:
    several, curriculum = (yaml.safe_load(text) for text in blocks("yaml"))
    arguments = EnvironmentArguments(**several)
    assert {name: entry.weight for name, entry in arguments.entries().items()} == {"blackjack": 2, "catch": 1}
    arguments = EnvironmentArguments(environment="environments/blackjack_env", prompt="Play.", **curriculum)
    settings: Any = arguments.curricula()
    assert [level.name for level in settings.levels] == ["small", "large"]
