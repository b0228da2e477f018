"""The YAML experiment: one flat file with the environment's settings, TRL's ``GRPOConfig`` and its ``ModelConfig``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.training.arguments import EnvironmentArguments


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
        ConfigurationError: There is no such file, or it holds a setting that nothing knows.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigurationError(f"There is no experiment file '{path}'.")
    from trl import GRPOConfig, ModelConfig, TrlParser

    parser = TrlParser((EnvironmentArguments, GRPOConfig, ModelConfig))  # pyright: ignore[reportArgumentType]
    try:
        with warnings.catch_warnings():
            # transformers warns of a field that TRL's own defaults set
            warnings.simplefilter("ignore", FutureWarning)
            environment, training, model = parser.parse_args_and_config(["--config", str(path), *overrides])
    except ConfigurationError:
        raise
    except ValueError as error:
        raise ConfigurationError(f"The experiment '{path}' cannot be used: {error}") from error
    return Experiment(path, environment, training, model)


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
