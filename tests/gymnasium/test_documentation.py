"""The code of docs/gymnasium.md runs as it stands, but for addresses and for how long it trains."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from openenv_trl.server.loading import load_app

PAGE = (Path(__file__).parents[2] / "docs" / "gymnasium.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^openenv-trl serve (.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_the_code_runs(index: int, cart_pole: str, serve: Callable[[str], str]) -> None:
    code = (
        BLOCKS[index].replace("http://localhost:8000", cart_pole).replace("total_timesteps=4000", "total_timesteps=256")
    )
    if "http://localhost:8001" in code:
        code = code.replace("http://localhost:8001", serve("environments/openspiel_env"))
    names: dict[str, object] = {}
    exec(code, names)
    for each in names.values():
        if (
            not isinstance(each, type)
            and type(each).__module__.startswith(("openenv_trl", "gymnasium.wrappers"))
            and hasattr(each, "close")
        ):
            each.close()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_serve(command: str) -> None:
    app = load_app(shlex.split(command)[0])
    assert "x-gymnasium" in app.state.models.action_cls.model_json_schema()
