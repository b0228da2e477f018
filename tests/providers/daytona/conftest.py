"""Daytona of the tests' own, with images whose servers really run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from daytona_stand_in import KEY, StandInDaytona, stand_in_daytona

ENVIRONMENTS = Path(__file__).parents[3] / "environments"


@pytest.fixture
def daytona(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandInDaytona]:
    """An organisation with a key, three images, and a snapshot."""
    pytest.importorskip("daytona", reason="pip install 'openenv-trl[daytona]'")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "openenv.yaml").write_text("name: broken\napp: server.nothing:app\n")
    blackjack = ENVIRONMENTS / "blackjack_env"
    images = {"blackjack-env:1": blackjack, "blackjack": blackjack, "broken:1": broken, "empty:1": None}
    with stand_in_daytona(images) as standing:
        monkeypatch.setenv("DAYTONA_API_URL", f"{standing.url}/api")
        monkeypatch.setenv("DAYTONA_API_KEY", KEY)
        yield standing
