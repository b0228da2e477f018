"""Promises of rewards that are described in an experiment's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from openenv_trl.errors import ConfigurationError
from openenv_trl.rewards import reward_from_settings
from openenv_trl.rewards import settings as settings_module
from openenv_trl.rollout import EndReason


def test_the_example_of_the_module_is_what_it_says(
    make: Any, score: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "rewards.py").write_text("def politeness(trajectory): return 10.0 * len(trajectory.turns)\n")
    monkeypatch.chdir(tmp_path)
    described = yaml.safe_load((settings_module.__doc__ or "").partition("\n\n")[2])
    reward, trajectory = reward_from_settings(described["rewards"]), make(problems=1)
    assert score(reward, trajectory) == [pytest.approx(1.0 - 0.5 * 0.2 + 0.0 + 0.1 * 10)]
    assert set(trajectory.rewards) == {
        "reward",
        "reward/environment_reward",
        "reward/format_reward",
        "reward/length_reward_if_environment_reward",
        "reward/length_reward_if_environment_reward/environment_reward",
        "reward/length_reward_if_environment_reward/length_reward",
        "reward/politeness",
    }


def test_one_entry_stands_for_itself(make: Any, score: Any) -> None:
    reward = reward_from_settings([{"type": "environment", "unfinished": -1.0}])
    assert reward.__name__ == "environment_reward"
    assert score(reward, make(EndReason.MAX_TURNS)) == [0.0]
    assert score(reward_from_settings([{"type": "environment", "weight": 3}]), make()) == [3.0]


def test_each_environment_may_have_a_list_of_its_own(make: Any, score: Any) -> None:
    entry = {"type": "by_environment", "rewards": {"a": [{"type": "environment"}, {"type": "turns"}]}}
    reward = reward_from_settings([entry])
    assert score(reward, make(environment="a"), make(environment="b")) == [0.99, None]


def test_all_kinds_are_built() -> None:
    judge = {"type": "judge", "base_url": "http://x/v1", "model": "m", "api_key": "k", "criteria": {"a": "A?"}}
    names = [{"type": "discounted", "gamma": 0.9}, {"type": "turns"}, {"type": "length", "max_tokens": 9}, judge]
    assert list(reward_from_settings(names).children) == [
        "discounted_reward",
        "turn_penalty",
        "length_reward",
        "judge_reward",
    ]


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([], "rewards is empty"),
        ([{"type": "luck"}], "luck"),
        ([{"unfinished": 1}], "type"),
        ([{"type": "format", "invlid": 1}], r"rewards\.0 has no field 'invlid' \(is 'invalid' meant\?\)"),
        ([{"type": "function", "function": "politeness"}], "'module:name'"),
        ([{"type": "function", "function": "no_such_module:f"}], "no function 'no_such_module:f'"),
        ([{"type": "function", "function": "math:pi"}], "no function but float"),
        ([{"type": "gate", "condition": {"type": "environment"}}], r"rewards\.0\.reward: Field required"),
        ({"type": "environment"}, r"rewards is a list of entries, and {'type': 'environment'} is none"),
        ("environment", "rewards is a list of entries, and 'environment' is none"),
    ],
)
def test_an_entry_that_cannot_be_used_is_named(entries: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        reward_from_settings(entries)
