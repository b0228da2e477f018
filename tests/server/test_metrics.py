"""What a server counts, what ``/metrics`` shows of it, and how late its event loop runs."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from openenv_trl.environment import Environment
from openenv_trl.server import create_app
from openenv_trl.server.capacity import ServerCapacityStatus
from openenv_trl.server.loop_lag import INTERVAL_S, WINDOW_S, LoopLag
from openenv_trl.server.metrics import BOUNDS_S, Seconds, ServerMetrics
from openenv_trl.server.metrics_page import MetricsPage
from openenv_trl.types import Action, Observation, State


class Counted(Environment[Action, Observation, State]):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        if action.metadata.get("stalls"):
            raise ValueError("stalled")
        return Observation(reward=1.0)

    @property
    def state(self) -> State:
        return State()


class Blocking(Counted):
    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        time.sleep(2 * INTERVAL_S)  # noqa: ASYNC251 - the mistake that the lag shows
        return Observation(reward=1.0)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def scrape(address: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = httpx.get(f"http://{address}/metrics", trust_env=False, timeout=60)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return samples(answer.text)


@given(st.lists(st.floats(min_value=0, max_value=1000)))
def test_a_histogram_keeps_every_value_in_the_bucket_that_prometheus_means(values: list[float]) -> None:
    seconds = Seconds()
    for value in values:
        seconds.add(value)
    buckets = dict(seconds.cumulative())
    for bound in BOUNDS_S:
        assert buckets[f"{bound:g}"] == sum(value <= bound for value in values)
    assert buckets["+Inf"] == len(values)
    assert seconds.total == pytest.approx(sum(values))


@given(st.lists(st.floats(min_value=0, max_value=1000), min_size=1))
def test_a_call_is_counted_as_a_histogram_counts_it(values: list[float]) -> None:
    metrics, seconds = ServerMetrics(), Seconds()
    for value in values:
        metrics.call_finished("step", "ok", value)
        seconds.add(value)
    counted = metrics.calls["step", "ok"]
    assert (counted.counts, counted.total) == (seconds.counts, seconds.total)


def test_everything_counted_is_shown() -> None:
    metrics, lag = ServerMetrics(), LoopLag()
    metrics.session_opened("ws")
    metrics.session_opened("mcp")
    metrics.session_closed("closed")
    metrics.session_refused("capacity")
    metrics.session_waits()
    metrics.session_waits()
    metrics.session_wait_ended()
    metrics.call_finished("step", "ok", 0.003)
    metrics.call_finished("step", "deadline", 40.0)
    metrics.call_abandoned()
    metrics.session_reaped()
    metrics.session_resumed()
    metrics.late_reply()
    lag.add(0.25, time.monotonic())
    status = ServerCapacityStatus(active_sessions=3, max_sessions=8)
    page = MetricsPage(metrics, lag, lambda: status, {"name": "echo", "mode": "simulation"})
    content, content_type = page.render("")
    shown = samples(content.decode())
    assert content_type.startswith("text/plain")
    for name, labels, value in (
        ("openenv_environment_info", {"name": "echo", "mode": "simulation"}, 1),
        ("openenv_sessions_active", {}, 3),
        ("openenv_sessions_limit", {}, 8),
        ("openenv_sessions_waiting", {}, 1),
        ("openenv_sessions_opened_total", {"transport": "ws"}, 1),
        ("openenv_sessions_opened_total", {"transport": "mcp"}, 1),
        ("openenv_sessions_closed_total", {"reason": "closed"}, 1),
        ("openenv_sessions_refused_total", {"reason": "capacity"}, 1),
        ("openenv_sessions_reaped_total", {}, 1),
        ("openenv_sessions_resumed_total", {}, 1),
        ("openenv_calls_abandoned_total", {}, 1),
        ("openenv_late_replies_total", {}, 1),
        ("openenv_call_seconds_count", {"kind": "step", "outcome": "ok"}, 1),
        ("openenv_call_seconds_sum", {"kind": "step", "outcome": "deadline"}, 40),
        ("openenv_call_seconds_bucket", {"kind": "step", "outcome": "ok", "le": "0.001"}, 0),
        ("openenv_call_seconds_bucket", {"kind": "step", "outcome": "ok", "le": "0.005"}, 1),
        ("openenv_event_loop_lag_seconds_count", {}, 1),
        ("openenv_event_loop_lag_max_seconds", {}, 0.25),
    ):
        assert shown[name, tuple(sorted(labels.items()))] == value, name
    assert shown["openenv_threads", ()] >= threading.active_count()


def test_each_number_says_its_unit_and_has_a_help_text() -> None:
    status = ServerCapacityStatus(active_sessions=0, max_sessions=1)
    content, _ = MetricsPage(ServerMetrics(), LoopLag(), lambda: status, {"name": "echo"}).render("")
    ours = [family for family in text_string_to_metric_families(content.decode()) if family.name.startswith("openenv_")]
    assert len(ours) > 12
    assert all(family.documentation for family in ours)


def test_a_server_shows_its_sessions_and_its_process(serve: Callable[[Any], Any], ask: Callable[..., str]) -> None:
    served = serve(create_app(Counted, Action, Observation, env_name="counted"))
    socket = served.socket()
    ask(socket, '{"type":"reset"}')
    shown = scrape(served.address)
    assert shown["openenv_environment_info", (("mode", "simulation"), ("name", "counted"))] == 1
    assert shown["openenv_sessions_active", ()] == 1
    assert shown["openenv_sessions_limit", ()] == 1
    if sys.platform == "linux":
        assert shown["process_resident_memory_bytes", ()] > 1e6


def test_a_hook_that_blocks_the_event_loop_shows_as_lag(serve: Callable[[Any], Any], ask: Callable[..., str]) -> None:
    served = serve(create_app(Blocking, Action, Observation))
    socket = served.socket()
    ask(socket, '{"type":"reset"}')
    ask(socket, '{"type":"step","data":{}}')
    assert scrape(served.address)["openenv_event_loop_lag_max_seconds", ()] >= INTERVAL_S * 0.9


def test_the_highest_lag_is_remembered_for_a_while_and_then_forgotten() -> None:
    lag = LoopLag()
    lag.add(0.5, 1000.0)
    lag.add(0.1, 1001.0)
    assert lag.highest(1002.0) == 0.5
    lag.add(0.2, 1000.0 + WINDOW_S)
    assert lag.highest(1000.0 + 1.5 * WINDOW_S) == 0.5
    assert lag.highest(1000.0 + 2 * WINDOW_S) == 0.2
    assert lag.highest(1000.0 + 9 * WINDOW_S) == 0.0
    lag.add(-0.1, 2000.0)
    assert lag.highest(2000.0) == 0.0


def test_a_server_that_nobody_scrapes_does_not_load_prometheus() -> None:
    code = "import sys, openenv_trl.server.app; print('prometheus_client' in sys.modules, 'mcp' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]
