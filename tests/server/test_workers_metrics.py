"""``/metrics`` of several workers is one page: what each counted under its number, what is the server's once."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client")

from openenv_trl.server.workers.scrape import merge_pages

PAGE = """\
# HELP openenv_sessions_active Sessions that hold a slot.
# TYPE openenv_sessions_active gauge
openenv_sessions_active 7.0
# HELP openenv_sessions_opened_total Sessions opened.
# TYPE openenv_sessions_opened_total counter
openenv_sessions_opened_total{{transport="ws"}} {opened}
"""


def test_samples_are_labelled_with_their_worker_and_families_stay_together() -> None:
    lines = merge_pages({1: PAGE.format(opened=4.0), 0: PAGE.format(opened=3.0)}).decode().splitlines()
    assert [line for line in lines if "opened" in line] == [
        "# HELP openenv_sessions_opened_total Sessions opened.",
        "# TYPE openenv_sessions_opened_total counter",
        'openenv_sessions_opened_total{transport="ws",worker="0"} 3.0',
        'openenv_sessions_opened_total{transport="ws",worker="1"} 4.0',
    ]


def test_what_is_true_of_the_whole_server_stands_there_once() -> None:
    lines = merge_pages({0: PAGE.format(opened=3.0), 1: PAGE.format(opened=4.0)}).decode().splitlines()
    assert [line for line in lines if line.startswith("openenv_sessions_active")] == ["openenv_sessions_active 7.0"]
