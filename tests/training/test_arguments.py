"""The settings of several environments and of curricula, as an experiment's file has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.experiment import load_experiment
from openenv_trl.training import EnvironmentArguments, StagedCurriculum
from openenv_trl.training.columns import detach_columns
from openenv_trl.training.servers import open_environments, open_servers

SEVERAL: dict[str, Any] = {
    "cards": {"environment_urls": "http://localhost:8001", "prompt": "Play cards.", "weight": 2, "num_tasks": 20},
    "balls": {
        "environment_urls": ["http://localhost:8002", "http://localhost:8003"],
        "max_turns": 3,
        "sessions_per_server": 5,
        "curriculum": {"levels": [{"name": "small", "reset": {"size": 3}}, {"name": "large", "reset": {"size": 9}}]},
    },
}


def several(**changes: Any) -> EnvironmentArguments:
    return EnvironmentArguments(**{"environments": SEVERAL, "prompt": "Play.", "num_tasks": 40, **changes})


def test_each_environment_has_its_own_settings_and_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def answer(urls: list[str]) -> None:
        asked.extend(urls)

    monkeypatch.setattr("openenv_trl.training.servers.check_servers", answer)
    arguments = several(max_turns=7)
    with open_environments(arguments, max_completion_tokens=99) as specs:
        assert isinstance(specs, dict)
        assert {name: spec.base_urls for name, spec in specs.items()} == {
            "cards": ("http://localhost:8001",),
            "balls": ("http://localhost:8002", "http://localhost:8003"),
        }
        limits = {name: spec.limits for name, spec in specs.items()}
        assert {name: each.max_turns for name, each in limits.items() if each} == {"cards": 7, "balls": 3}
        assert {each.max_completion_tokens for each in limits.values() if each} == {99}
        assert {name: spec.sessions_per_server for name, spec in specs.items()} == {"cards": 64, "balls": 5}
    assert asked == [f"http://localhost:{port}" for port in (8001, 8002, 8003)]


def test_their_datasets_are_mixed_by_their_weights() -> None:
    rows = several().load_dataset()
    assert len(rows) == 60
    assert rows["environment"][:6].count("cards") == 4
    prompts = {(row["environment"], detach_columns(row["prompt"])[0][0]["content"]) for row in rows}
    assert prompts == {("cards", "Play cards."), ("balls", "Play.")}


def test_an_environments_own_prompt_comes_before_the_dataset_of_all(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "Of the file.", "seed": 1}\n')
    rows = several(dataset_name=str(file), prompt=None).load_dataset()
    prompts = {(row["environment"], detach_columns(row["prompt"])[0][0]["content"]) for row in rows}
    assert prompts == {("cards", "Play cards."), ("balls", "Of the file.")}


def test_a_curriculum_is_read_of_one_environment_and_of_each() -> None:
    levels = SEVERAL["balls"]["curriculum"]
    of_each = several().curricula()
    assert isinstance(of_each, dict)
    assert [level.name for level in of_each["balls"].levels] == ["small", "large"]
    one = EnvironmentArguments(environment_urls=["http://x"], prompt="Play.", curriculum={**levels, "threshold": 0.5})
    settings = one.curricula()
    assert isinstance(settings, StagedCurriculum)
    assert settings.threshold == 0.5
    assert EnvironmentArguments(environment_urls=["http://x"], prompt="Play.").curricula() is None


def test_a_file_of_several_environments_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(
        "environments:\n"
        "  cards: {environment_urls: 'http://localhost:1', weight: 2}\n"
        "  balls: {environment_urls: 'http://localhost:2', curriculum: {kind: band, levels: [{name: a}, {name: b}]}}\n"
        "prompt: Play.\nuse_cpu: true\nbf16: false\n"
    )
    arguments = load_experiment(file).environment
    assert [entry.weight for entry in arguments.entries().values()] == [2.0, 1.0]
    curricula = arguments.curricula()
    assert isinstance(curricula, dict)
    assert [each.kind for each in curricula.values()] == ["band"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"environments": {"a": {"prompt": "x"}}}, "'a' cannot be used.*environment_urls"),
        ({"environments": {"a": {"environment": "e", "wieght": 2}}, "prompt": "x"}, "wieght"),
        ({"environments": {"a": {"environment": "e", "weight": 0}}, "prompt": "x"}, "weight.*greater than 0"),
        ({"environments": {"a": {"environment": "e"}}}, "'a' cannot be used.*prompt"),
        ({"environments": {"a": {"environment": "e"}}, "environment": "e", "prompt": "x"}, "not both"),
        ({"environments": {"a": {"environment": "e"}}, "prompt": "x", "tiny_policy": True}, "tiny_policy"),
        ({"environments": {"a": {"environment": "e"}}, "prompt": "x", "curriculum": {"levels": []}}, "below its name"),
        ({"environment": "e", "prompt": "x", "curriculum": {"levels": []}}, "levels"),
        ({"environment": "e", "prompt": "x", "curriculum": {"kind": "steps"}}, "stages"),
        ({"environment": "e", "prompt": "x", "curriculum": {"levels": [{"name": "a"}] * 2}}, "different names"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_their_place(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        EnvironmentArguments(**settings)


def test_what_needs_one_environment_says_so_of_several() -> None:
    with pytest.raises(ConfigurationError, match=r"cards, balls"), open_servers(several()):
        pass


def test_rewards_are_described_in_the_file_and_checked_at_once() -> None:
    plain = EnvironmentArguments(environment="x", prompt="Play.", unfinished_reward=-1.0)
    assert plain.reward_function().__name__ == "environment_reward"
    described = [{"type": "environment", "unfinished": -1.0}, {"type": "turns", "weight": 0.5}]
    several = EnvironmentArguments(environment="x", prompt="Play.", rewards=described)
    assert list(several.reward_function().children) == ["environment_reward", "turn_penalty"]
    with pytest.raises(ConfigurationError, match=r"rewards\.0: there is no type 'luck'"):
        EnvironmentArguments(environment="x", prompt="Play.", rewards=[{"type": "luck"}])
