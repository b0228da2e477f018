"""The command ``openenv-trl``: serve an environment, train on it, evaluate a policy in it."""

from __future__ import annotations

import sys

from openenv_trl.errors import OpenEnvError

_OF_TRAINING = frozenset({"accelerate", "datasets", "matplotlib", "pyarrow", "torch", "transformers", "trl"})


def main() -> None:
    """Run the command. An error of this package is printed as one message, without a traceback; exit code 1."""
    from openenv_trl.cli.commands import app

    try:
        app()
    except OpenEnvError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from error
    except ModuleNotFoundError as error:
        if error.name not in _OF_TRAINING:
            raise
        print(
            f"error: '{error.name}' is not installed. Training and evaluation need the extra 'train': "
            "pip install 'openenv-trl[train]'",
            file=sys.stderr,
        )
        raise SystemExit(1) from error
