"""How a command runs what it names: a recipe in this process, so that a signal to one is a signal to the other."""

from __future__ import annotations

import runpy
import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from openenv_trl.errors import ConfigurationError, OpenEnvError


def run_here(script: Path, arguments: Sequence[str]) -> None:
    """Run a script as ``python SCRIPT ARGUMENTS`` would, in this process.

    Nothing stands between the command and the training: SIGTERM, SIGKILL and Ctrl-C to the one end the other, and an
    error of this package is told by the command as its own.
    """
    if not sys.warnoptions:
        warnings.filterwarnings("ignore", category=FutureWarning)
    sys.argv = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")


@contextmanager
def errors_of_files(model: str) -> Generator[None]:
    """For the block, what transformers and datasets say of a model or data set that they cannot load is one message.

    They raise OSError for it, without an error number; one of the system's has a number and goes through.

    Args:
        model: The model's name, for the message.

    Raises:
        ConfigurationError: In place of such an error.
    """
    try:
        yield
    except OpenEnvError:
        raise  # some are OSErrors too
    except OSError as error:
        if error.errno is not None or not error.args:
            raise
        raise ConfigurationError(
            f"Cannot load the model '{model}' or the experiment's data set. {' '.join(str(error).split())}"
        ) from error
