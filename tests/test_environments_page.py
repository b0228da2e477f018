"""docs/environments.md: its examples run as they stand and print what it says; it names every environment there is."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python|text)\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_walk_through_prints_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    module = ModuleType("the_walk_through")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    printed, expected = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        for kind, text in BLOCKS:
            if kind == "python":
                exec(compile(text, "docs/environments.md", "exec"), module.__dict__)
            else:
                expected += text
    assert printed.getvalue() == expected


def test_every_environment_is_named() -> None:
    for folder in ROOT.glob("environments/*_env"):
        assert f"[{folder.name}](../environments/{folder.name}/README.md)" in PAGE
