"""A server looks for garbage while it serves, and not while it is imported."""

from __future__ import annotations

import gc
import textwrap
from pathlib import Path

import pytest

from openenv_trl.client import GenericEnvClient
from openenv_trl.providers import ProcessProvider
from openenv_trl.server.__main__ import main

pytestmark = pytest.mark.anyio

APP = """
    import gc
    from openenv_trl.environment import Environment
    from openenv_trl.server import create_app
    from openenv_trl.types import Action, Observation, State

    AT_IMPORT = gc.isenabled()

    class Looking(Environment[Action, Observation, State]):
        def reset(self, seed=None, episode_id=None):
            return Observation(metadata={"at import": AT_IMPORT, "while serving": gc.isenabled()})

        def step(self, action, timeout_s=None, **kwargs):
            return Observation()

        @property
        def state(self):
            return State()

    app = create_app(Looking, Action, Observation)
"""


async def test_garbage_is_looked_for_while_serving_only(tmp_path: Path) -> None:
    folder = tmp_path / "looking"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "openenv.yaml").write_text("app: app:app\n")
    (folder / "app.py").write_text(textwrap.dedent(APP))
    async with ProcessProvider(str(folder)) as provider, GenericEnvClient(provider.base_urls[0]) as env:
        result = await env.reset()
    assert result.observation["metadata"] == {"at import": False, "while serving": True}


def test_it_is_looked_for_again_where_nothing_could_be_served(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 2
    assert gc.isenabled()
