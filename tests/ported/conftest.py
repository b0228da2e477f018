"""The packages with their import lines changed, on the import path of this process and served by others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from openenv_trl.providers import ProcessProvider


@pytest.fixture(scope="session")
def import_lines() -> ModuleType:
    """The module that changes import lines."""
    spec = spec_from_file_location("ported_import_lines", Path(__file__).parent / "import_lines.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def packages(import_lines: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that holds them."""
    folder = tmp_path_factory.mktemp("ported")
    for path in import_lines.PACKAGES.iterdir():
        import_lines.ported(path.name, folder)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def serve(packages: Path) -> Iterator[Callable[[str], str]]:
    """Serve a package and return its address; each in one process until the tests end."""
    running: dict[str, str] = {}
    with ExitStack() as stack:

        def address(name: str) -> str:
            if name not in running:
                running[name] = stack.enter_context(ProcessProvider(packages / name)).base_urls[0]
            return running[name]

        yield address
