"""From a folder or an import name to the application to serve.

An environment package is a folder with an ``openenv.yaml`` whose ``app`` names the application, as ``server.app:app``.
The folder itself is the package: its parent goes on the import path, and the application is imported as
``<folder>.server.app:app``, so that the package's relative imports work. ``gymnasium:NAME`` is the application of the
Gymnasium environment of that name.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openenv_trl.errors import ConfigurationError

MANIFEST = "openenv.yaml"

_DEFAULT_APP = "server.app:app"
_GYMNASIUM = "gymnasium:"


def load_app(target: str | Path) -> Callable[..., Any]:
    """Import an application and return it.

    Args:
        target: The folder of an environment package, ``module:attribute``, or ``gymnasium:NAME``, with arguments of
            ``gymnasium.make`` behind a question mark.

    Raises:
        ConfigurationError: There is no such folder, manifest, module or attribute; the text says which.

    Example:
        >>> app = load_app("environments/blackjack_env")
    """
    if str(target).startswith(_GYMNASIUM):
        # By its name: that room is above this one, and most servers do without it.
        gymnasium = importlib.import_module("openenv_trl.gymnasium.serving")
        return gymnasium.app_for(str(target).removeprefix(_GYMNASIUM))
    module, attribute = _import_name(target)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # the application's own import failed: its traceback says more than we can
        raise ConfigurationError(f"Cannot import '{module}' to serve {target}: {error}.") from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ConfigurationError(f"The module '{module}' has no '{attribute}' to serve.")
        found = getattr(found, name)
    _refuse_environment(module, attribute, found)
    if not callable(found):
        raise ConfigurationError(f"'{module}:{attribute}' is a {type(found).__name__}, not an ASGI application.")
    return found


def _refuse_environment(module: str, attribute: str, found: Any) -> None:
    from openenv_trl.environment import Environment

    is_class = isinstance(found, type)
    cls: type[Any] = found if is_class else type(found)
    if issubclass(cls, Environment):
        what = "is an Environment class" if is_class else f"is an instance of the Environment class {cls.__name__}"
        raise ConfigurationError(
            f"'{module}:{attribute}' {what}, not an application: serve the app that create_app({cls.__name__}, ...) "
            "returns."
        )


def _import_name(target: str | Path) -> tuple[str, str]:
    path = Path(target)
    if path.is_dir():
        return _name_in_folder(path.resolve())
    module, colon, attribute = str(target).partition(":")
    if not colon or not attribute or "/" in module:
        raise ConfigurationError(
            f"'{target}' is neither a folder nor 'module:attribute'. Give the folder of an environment package (the "
            f"one with {MANIFEST}), an application as 'package.server.app:app', or 'gymnasium:CartPole-v1'."
        )
    _put_on_path(Path.cwd())
    return module, attribute


def _name_in_folder(folder: Path) -> tuple[str, str]:
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise ConfigurationError(f"{folder} has no {MANIFEST}: it is not the folder of an environment package.")
    if not folder.name.isidentifier():
        raise ConfigurationError(
            f"The folder's name '{folder.name}' is not a Python name, so it cannot be imported as a package. Rename it."
        )
    module, colon, attribute = _app_entry(manifest).partition(":")
    if not colon:
        raise ConfigurationError(f"{manifest}: 'app' must be 'module:attribute', such as '{_DEFAULT_APP}'.")
    _put_on_path(folder.parent)
    return f"{folder.name}.{module}", attribute


def _app_entry(manifest: Path) -> str:
    # One top-level key is all that is needed of the YAML; its parser alone would cost a fifth of the start.
    found = re.search(r"""^app\s*:\s*["']?([\w.]+(?::[\w.]+)?)["']?\s*(?:#.*)?$""", manifest.read_text(), re.MULTILINE)
    return found[1] if found else _DEFAULT_APP


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
