"""A test that writes a module and imports it leaves nothing of it to the next."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


@pytest.mark.parametrize("content", ["first", "second"])
@pytest.mark.parametrize("file", ["written_by_tests.py", "written_by_tests/__init__.py", "written_by_tests/inner.py"])
def test_a_written_module_goes_with_its_test(
    content: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"CONTENT = {content!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert content == importlib.import_module(name).CONTENT
