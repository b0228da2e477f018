"""Public names that are imported when they are first used, so that a package costs only what is used of it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_names(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a package.

    Args:
        package: Its name.
        homes: The names that each module has.

    Example:
        >>> __getattr__ = lazy_names(__name__, {"openenv_trl.providers.docker": ("LocalDockerProvider",)})
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        module = home_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
