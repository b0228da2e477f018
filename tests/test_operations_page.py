"""docs/operations.md names every setting and every metric that there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from openenv_trl.server.capacity import ServerCapacityStatus
from openenv_trl.server.loop_lag import LoopLag
from openenv_trl.server.metrics import ServerMetrics
from openenv_trl.server.metrics_page import MetricsPage
from openenv_trl.server.settings import AppSettings

PAGE = (Path(__file__).parents[1] / "docs" / "operations.md").read_text()


def rows(prefix: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, rest in re.findall(rf"^\| `({prefix}[A-Za-z_]+)` \|(.*)\|$", PAGE, re.MULTILINE):
        found[name] = [cell.strip() for cell in rest.split("|")]
    return found


def default_in_words(name: str, default: object) -> str:
    if name == "execution":
        return "as the class says"
    return f"{default:.0f}" if isinstance(default, int | float) else "none"


def test_every_setting_is_in_the_table_with_its_default() -> None:
    fields = {
        f"OPENENV_TRL_{name.upper()}": default_in_words(name, field.default)
        for name, field in AppSettings.model_fields.items()
    }
    assert {name: cells[0] for name, cells in rows("OPENENV_TRL_").items()} == fields


def test_every_metric_is_in_the_table() -> None:
    metrics = ServerMetrics()
    status = ServerCapacityStatus(active_sessions=0, max_sessions=1)
    page = MetricsPage(metrics, LoopLag(), lambda: status, {"name": "echo", "mode": "simulation"})
    real: dict[str, str] = {}
    for family in page.collect():
        kind = "gauge" if family.type == "info" else family.type
        real[family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")] = kind
    assert {name: cells[0] for name, cells in rows("openenv_").items()} == real
