"""A mistake in an experiment's file is told in one sentence that names the file and the setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.experiment import check_before_start, load_experiment, read_settings

ROOT = Path(__file__).parents[2]
WHOLE = f"""\
environment: {ROOT}/environments/blackjack_env
prompt: Play.
model_name_or_path: {{model}}
use_cpu: true
bf16: false
"""


def _file(folder: Path, text: str) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1\n b: 2", ["is not YAML", "line 2, column 3", "expected ',' or ']'"]),
        ("a: !!python/object:x {}\n", ["is not YAML", "line 1"]),
        ("a: \x07", ["is not YAML", "special characters"]),
        ("- a\n- b\n", ["holds a list", "one setting a line"]),
        ("words", ["holds a str"]),
        ("", ["is empty"]),
        ("learnin_rate: 1\nreplicas: 2\n", ["'learnin_rate' (is 'learning_rate' meant?)"]),
        ("1: 2\n", ["nothing knows: '1'"]),
    ],
)
def test_a_file_that_is_no_experiment_is_told(tmp_path: Path, text: str, words: list[str]) -> None:
    path = _file(tmp_path, text)
    for read in (load_experiment, read_settings):
        with pytest.raises(ConfigurationError) as caught:
            read(path)
        for word in (str(path), *words):
            assert word in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_bytes(b"prompt: \xff\n")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_experiment(path)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("replicas: two", ["--replicas", "'two'"]),
        ("replicas: [1]", ["replicas is one number, not [1]"]),
        ("replicas: 1.5", ["replicas=1.5 is no whole number"]),
        ("max_steps: many", ["max_steps", "'many'"]),
        ("use_cpu: perhaps", ["use_cpu", "perhaps"]),
        ("env: words", ["env"]),
    ],
)
def test_a_value_that_cannot_be_used_is_told_without_the_usage(tmp_path: Path, setting: str, words: list[str]) -> None:
    path = _file(tmp_path, "environment: e\nprompt: p\n" + setting)
    with pytest.raises(ConfigurationError) as caught:
        load_experiment(path)
    for word in (str(path), *words):
        assert word in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_an_override_that_cannot_be_used_is_told_without_the_usage(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError, match="--replicas: invalid int value: 'two'"):
        load_experiment(_file(tmp_path, "environment: e\nprompt: p\n"), ["--replicas", "two"])
    assert "usage" not in "".join(capfd.readouterr())


ONE = "environment: e\nprompt: p\n"


@pytest.mark.parametrize(
    ("settings", "meant"),
    [
        (ONE + "rollout: {max_turn: 3}", "there are no sections.*'max_turn' (is 'max_turns' meant?)"),
        (ONE + "training: {learnin_rate: 1, seed: 2}", "'learnin_rate' (is 'learning_rate' meant?), 'seed')"),
        (ONE + "strategie: {refill: {type: none}}", "'strategie' (is 'strategies' meant?)"),
        (ONE + "accelerator_config: {split_batche: true}", "'split_batche' (is 'split_batches' meant?)"),
        ("prompt: p\nprovider: {typ: docker}", "it has no field 'typ' (is 'type' meant?)"),
        ("prompt: p\nprovider: {type: dokcer}", "there is no type 'dokcer' (is 'docker' meant?)"),
        ("prompt: p\nprovider: {type: docker, imag: a}", "it has no field 'imag' (is 'image' meant?)"),
        (
            "prompt: p\nprovider: {type: kubernetes, image: a, tolerations: [{kye: b}]}",
            "tolerations.0 has no field 'kye' (is 'key' meant?)",
        ),
        (
            "prompt: p\nprovider: {type: docker, image: a}\npool: {max_replica: 3}",
            "it has no field 'max_replica' (is 'max_replicas' meant?)",
        ),
        (
            ONE + "rewards: [{type: turns}, {type: environment, unfinishd: 1}]",
            "rewards.1 has no field 'unfinishd' (is 'unfinished' meant?)",
        ),
        (ONE + "rewards: [{typ: environment}]", "rewards.0 has no field 'typ' (is 'type' meant?)"),
        (ONE + "rewards: [{type: enviroment}]", "there is no type 'enviroment' (is 'environment' meant?)"),
        (
            ONE + "rewards: [{type: gate, condition: {type: environment}, reward: {type: turns, per_trn: 1}}]",
            "rewards.0.reward has no field 'per_trn' (is 'per_turn' meant?)",
        ),
        (
            ONE + "rewards: [{type: by_environment, rewards: {a: [{type: format, invald: 3}]}}]",
            "rewards.0.rewards.a.0 has no field 'invald' (is 'invalid' meant?)",
        ),
        (ONE + "strategies: {refil: 1}", "it has no field 'refil' (is 'refill' meant?)"),
        (
            ONE + "strategies: {straggler: {type: cut, grace: 1}}",
            "straggler has no field 'grace' (is 'grace_s' meant?)",
        ),
        (ONE + "strategies: {straggler: {grace_s: 1}}", "straggler: give its type, one of wait, cut, hedge"),
        (ONE + "curriculum: {kin: band, levels: [{name: a}]}", "it has no field 'kin' (is 'kind' meant?)"),
        (ONE + "curriculum: {kind: stags, levels: [{name: a}]}", "there is no kind 'stags' (is 'stages' meant?)"),
        (ONE + "curriculum: {levels: [{nam: a}]}", "levels.0 has no field 'nam' (is 'name' meant?)"),
        ("environments: {a: {enviroment: x}}", "'a' .* it has no field 'enviroment' (is 'environment' meant?)"),
        (
            "environments: {a: {environment: x, prompt: p, curriculum: {levels: [{name: a}], treshold: 3}}}",
            "'a' .* it has no field 'treshold' (is 'threshold' meant?)",
        ),
    ],
)
def test_an_unknown_name_on_any_level_is_told_with_the_one_that_was_meant(
    tmp_path: Path, settings: str, meant: str
) -> None:
    path = _file(tmp_path, settings)
    words = [re.escape(each) for each in re.split(r" ?\.\* ?", meant)]
    with pytest.raises(ConfigurationError, match=".*".join(words)) as caught:
        load_experiment(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("option", [["--learnin_rate", "1e-3"], ["--learnin_rate=1e-3"]])
def test_an_unknown_option_is_told_with_the_one_that_was_meant(tmp_path: Path, option: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"'--learnin_rate' \(is '--learning_rate' meant\?\)"):
        load_experiment(_file(tmp_path, ONE), option)


def test_an_experiment_whose_parts_are_there_may_start(tmp_path: Path, model: Path) -> None:
    experiment = load_experiment(_file(tmp_path, WHOLE.format(model=model)))
    assert check_before_start(experiment) == str(model)
    assert check_before_start(experiment, "owner/on-the-hub") == "owner/on-the-hub"
    assert check_before_start(experiment, "on-the-hub") == "on-the-hub"


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (["model.safetensors"], "it has no weights"),
        (["tokenizer.json"], "it has no tokenizer"),
        (["config.json", "tokenizer.json"], "it has no config.json and no tokenizer"),
    ],
)
def test_a_model_of_which_a_part_is_missing_is_told(
    tmp_path: Path, model: Path, missing: list[str], words: str
) -> None:
    for name in missing:
        (model / name).unlink()
    experiment = load_experiment(_file(tmp_path, WHOLE.format(model=model)))
    with pytest.raises(ConfigurationError, match=words) as caught:
        check_before_start(experiment)
    assert str(model) in str(caught.value)


@pytest.mark.parametrize("name", ["/no/such/folder", "./here", "../there", "runs/one/grpo"])
def test_a_model_that_is_no_folder_and_no_name_is_told(tmp_path: Path, name: str) -> None:
    experiment = load_experiment(_file(tmp_path, WHOLE.format(model=name)))
    with pytest.raises(ConfigurationError, match=r"There is no folder .*\(model_name_or_path, or --model\)") as caught:
        check_before_start(experiment)
    assert name in str(caught.value)


def test_an_experiment_without_a_model_is_told(tmp_path: Path) -> None:
    experiment = load_experiment(_file(tmp_path, WHOLE.replace("model_name_or_path: {model}\n", "")))
    with pytest.raises(ConfigurationError, match="set model_name_or_path"):
        check_before_start(experiment)


def test_a_tiny_policy_may_be_absent_for_training_only(tmp_path: Path) -> None:
    experiment = load_experiment(_file(tmp_path, WHOLE.format(model=tmp_path / "none") + "tiny_policy: true\n"))
    assert check_before_start(experiment, trains=True) == str(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="Train first"):
        check_before_start(experiment)


@pytest.mark.parametrize(
    ("environment", "words"),
    [("environments/none", "there is no folder 'environments/none' here"), ("{folder}", "has no openenv.yaml")],
)
def test_an_environment_that_is_not_there_is_told(tmp_path: Path, model: Path, environment: str, words: str) -> None:
    overrides = ["--environment", environment.format(folder=tmp_path)]
    experiment = load_experiment(_file(tmp_path, WHOLE.format(model=model)), overrides)
    with pytest.raises(ConfigurationError, match=f"environment: .*{words}"):
        check_before_start(experiment)


def test_an_environment_is_not_looked_for_where_servers_run_already(tmp_path: Path, model: Path) -> None:
    overrides = ["--environment", "environments/none", "--environment_urls", "http://localhost:8000"]
    check_before_start(load_experiment(_file(tmp_path, WHOLE.format(model=model)), overrides))
