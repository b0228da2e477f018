"""The YAML experiment: one flat file with the environment's settings, TRL's ``GRPOConfig`` and its ``ModelConfig``."""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.settings_errors import with_guess
from openenv_trl.training.arguments import EnvironmentArguments

_ALSO_KNOWN = frozenset({"env"})  # environment variables, which TRL's parser sets
_WEIGHTS = ("*.safetensors", "*.bin")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.*", "*.model")


@dataclass(frozen=True)
class Experiment:
    """An experiment as its file and the command line say.

    Attributes:
        path: The file.
        environment: The environment, its episodes and tasks.
        training: TRL's ``GRPOConfig``.
        model: TRL's ``ModelConfig``.
    """

    path: Path
    environment: EnvironmentArguments
    training: Any
    model: Any


def load_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment.

    Args:
        path: The YAML file.
        overrides: Settings that come before the file's, as on a command line: ``["--learning_rate", "1e-3"]``.

    Raises:
        ConfigurationError: There is no such file, it is no YAML, or it holds a setting that nothing knows or a value
            that cannot be used.
    """
    path = Path(path)
    settings = read_settings(path)
    from trl import GRPOConfig, ModelConfig, TrlParser

    parser = TrlParser((EnvironmentArguments, GRPOConfig, ModelConfig))  # pyright: ignore[reportArgumentType]

    def refuse(message: str) -> NoReturn:
        raise ConfigurationError(f"The experiment '{path}' cannot be used: {message}.")

    _refuse_values_of_another_kind(settings, parser, path)
    _refuse_unknown_options(overrides, parser, path)
    parser.error = refuse  # argparse would print the usage, of two hundred lines, and exit
    try:
        with warnings.catch_warnings():
            # transformers warns of a field that TRL's own defaults set
            warnings.simplefilter("ignore", FutureWarning)
            environment, training, model = parser.parse_args_and_config(["--config", str(path), *overrides])
    except ConfigurationError as error:
        if str(path) in str(error):
            raise
        raise ConfigurationError(f"The experiment '{path}' cannot be used: {error}") from error
    except (ValueError, TypeError) as error:  # TypeError: a list, say, where a number belongs
        raise ConfigurationError(f"The experiment '{path}' cannot be used: {error}") from error
    return Experiment(path, environment, training, model)


def read_settings(path: str | Path) -> dict[str, Any]:
    """Read an experiment's file and check that it is one, without taking over its settings.

    Raises:
        ConfigurationError: There is no such file, it is no YAML mapping, or it holds a setting that nothing knows.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigurationError(f"There is no experiment file '{path}'.")
    import yaml

    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"The experiment '{path}' is not YAML: {_where_and_what(error)}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The experiment '{path}' cannot be read: {error}.") from error
    if not isinstance(found, dict):
        kind = "is empty" if found is None else f"holds a {type(found).__name__}"
        raise ConfigurationError(f"The experiment '{path}' {kind}: write one setting a line, as 'replicas: 2'.")
    _check_provider(path, cast("dict[Any, Any]", found))
    from trl import GRPOConfig, ModelConfig

    known = {
        field.name: str(field.type)
        for group in (EnvironmentArguments, GRPOConfig, ModelConfig)
        for field in dataclasses.fields(group)
    }
    settings = cast("dict[Any, Any]", found)
    unknown = [
        _unknown(str(name), settings[name], known) for name in settings if name not in known.keys() | _ALSO_KNOWN
    ]
    unknown += _unknown_of_accelerate(settings.get("accelerator_config"))
    if unknown:
        raise ConfigurationError(f"The experiment '{path}' has settings that nothing knows: {', '.join(unknown)}.")
    return settings


def _check_provider(path: Path, settings: dict[Any, Any]) -> None:
    """What is wrong with a provider is told before the trainer's packages are imported, which takes a while."""
    from openenv_trl.training.provider_settings import servers_of

    if not settings.get("provider"):
        return
    try:
        servers_of(settings["provider"], settings.get("pool"), settings.get("environment"), sessions_per_server=1)
    except ConfigurationError as error:
        raise ConfigurationError(f"The experiment '{path}' cannot be used: {error}") from error


def check_before_start(experiment: Experiment, model: str | None = None, *, trains: bool = False) -> str:
    """Check what an experiment names before anything is started or loaded: its environment's folder, its model's.

    Args:
        experiment: The experiment.
        model: The model, in place of the experiment's own.
        trains: Whether it is to be trained: a tiny policy that is not there is then made.

    Returns:
        The model's folder or name.

    Raises:
        ConfigurationError: Something is not there; the message names the setting.
    """
    environment = experiment.environment
    for each in [environment.for_environment(name) for name in environment.environments] or [environment]:
        if not each.environment_urls and each.environment is not None:
            _check_environment(each.environment)
    name = model or experiment.model.model_name_or_path
    if not name:
        raise ConfigurationError(f"The experiment '{experiment.path}' names no model: set model_name_or_path.")
    folder = Path(name)
    if environment.tiny_policy and not (folder / "config.json").exists():
        if trains:
            return name
        raise ConfigurationError(f"There is no model at '{name}'. Train first: openenv-trl train {experiment.path}")
    if folder.is_dir():
        _check_model(folder)
    elif folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        # Of a name such as "owner/model" only the hub can tell whether it is right.
        raise ConfigurationError(f"There is no folder '{name}' for the model (model_name_or_path, or --model).")
    return name


def recipe_path(name: str) -> Path:
    """A recipe's script: in the installed package, or beside it in a checkout.

    Raises:
        ConfigurationError: There is no recipe of that name.
    """
    package = Path(__file__).parent
    for folder in (package / "recipes", package.parent / "recipes"):
        script = folder / f"{name}.py"
        if script.is_file():
            return script
    raise ConfigurationError(f"There is no recipe '{name}' in {package / 'recipes'}.")


def _check_environment(name: str) -> None:
    from openenv_trl.providers.command import ServerCommand

    if ":" not in name and not Path(name).is_dir():
        raise ConfigurationError(
            f"environment: there is no folder '{name}' here ({Path.cwd()}). Give the folder of an environment package, "
            "or an application as 'module:app'."
        )
    try:
        ServerCommand.of(name, None)
    except ConfigurationError as error:
        raise ConfigurationError(f"environment: {error}") from error


def _refuse_values_of_another_kind(settings: dict[str, Any], parser: Any, path: Path) -> None:
    """What argparse checks of a word of the command line it takes from the file as it is."""
    for action in parser._actions:
        value = settings.get(action.dest)
        wrong = ""
        if action.nargs is None and action.type in (int, float) and isinstance(value, list | dict):
            wrong = f"{action.dest} is one number, not {value}"
        elif action.type is int and isinstance(value, float):
            wrong = f"{action.dest}={value} is no whole number"
        if wrong:
            raise ConfigurationError(f"The experiment '{path}' cannot be used: {wrong}.")


def _check_model(folder: Path) -> None:
    parts = {"config.json": ("config.json", "adapter_config.json"), "weights": _WEIGHTS, "tokenizer": _TOKENIZER}
    missing = [part for part, patterns in parts.items() if not any(any(folder.glob(each)) for each in patterns)]
    if missing:
        raise ConfigurationError(
            f"The folder '{folder}' is no whole model: it has no {' and no '.join(missing)}. Give one that was saved "
            "with its tokenizer (model_name_or_path, or --model)."
        )


def _unknown(name: str, value: Any, known: Mapping[str, str]) -> str:
    """A setting that nothing knows, with what may have been meant.

    Args:
        name: Its name.
        value: Its value; of a mapping it may be that a setting which takes one was meant, or none: a section.
        known: The types of all settings, as written, by name.
    """
    if not isinstance(value, dict) or not value:
        return with_guess(name, known)
    mappings = [each for each, kind in known.items() if "dict" in kind.lower()]
    if difflib.get_close_matches(name, mappings, n=1):
        return with_guess(name, mappings)
    inside = [str(each) for each in cast("dict[Any, Any]", value)]
    shown = ", ".join(f"'{each}'" if each in known else with_guess(each, known) for each in inside)
    return f"'{name}' (there are no sections: write what is in it beside the other settings: {shown})"


def _unknown_of_accelerate(given: Any) -> list[str]:
    """The one mapping of TRL's settings whose keys are known beforehand; others go to whatever class is named."""
    if not isinstance(given, dict):
        return []
    from transformers.trainer_pt_utils import AcceleratorConfig

    known = [field.name for field in dataclasses.fields(AcceleratorConfig)]
    names = [str(name) for name in cast("dict[Any, Any]", given)]
    return [with_guess(name, known) + " in accelerator_config" for name in names if name not in known]


def _refuse_unknown_options(overrides: Sequence[str], parser: Any, path: Path) -> None:
    known: list[str] = list(parser._option_string_actions)
    names = [word.partition("=")[0] for word in overrides if word.startswith("--")]
    unknown = [with_guess(name, known) for name in names if not any(each.startswith(name) for each in known)]
    if unknown:
        raise ConfigurationError(f"The experiment '{path}' is given settings that nothing knows: {', '.join(unknown)}.")


def _where_and_what(error: Any) -> str:
    """YAML's error in one line."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return where + (getattr(error, "problem", None) or " ".join(str(error).split()))
