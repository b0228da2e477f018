"""The mode of a client: a word that the public package's clients carry, from an argument or an environment variable."""

from __future__ import annotations

import os

from openenv_trl.errors import ConfigurationError

MODE_VARIABLE = "OPENENV_CLIENT_MODE"
_MODES = ("simulation", "production")


def client_mode(given: str | None) -> str:
    """Return the mode: the argument, or what the environment variable OPENENV_CLIENT_MODE says, or "simulation".

    Raises:
        ConfigurationError: There is no such mode.
    """
    text = given if given is not None else os.environ.get(MODE_VARIABLE) or "simulation"
    mode = text.strip().lower()
    if mode not in _MODES:
        where = "mode" if given is not None else f"the environment variable {MODE_VARIABLE}"
        raise ConfigurationError(f"{where} is '{text}': there is 'simulation' and 'production'.")
    return mode
