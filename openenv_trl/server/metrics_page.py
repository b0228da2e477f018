"""``/metrics``: a server's numbers in the text format of Prometheus.

Names begin with ``openenv_`` and end with their unit; labels have few values. The library is imported at the first
scrape: a server that nobody scrapes does not pay for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from fastapi import FastAPI, Request, Response

from openenv_trl.server.capacity import ServerCapacityStatus
from openenv_trl.server.loop_lag import LoopLag, measure_loop_lag
from openenv_trl.server.metrics import ServerMetrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_THREADS = Path("/proc/self/task")


class MetricsPage:
    """What ``/metrics`` shows.

    Args:
        metrics: What was counted.
        lag: How late the event loop ran.
        status: How full the server is, now.
        information: What the environment is: labels of one constant metric.
    """

    def __init__(
        self,
        metrics: ServerMetrics,
        lag: LoopLag,
        status: Callable[[], ServerCapacityStatus],
        information: dict[str, str],
    ) -> None:
        self._metrics = metrics
        self._lag = lag
        self._status = status
        self._information = information
        self._registry: Any = None

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type, in the format that the reader accepts."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder
        from prometheus_client.process_collector import ProcessCollector

        if self._registry is None:
            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(self)
            ProcessCollector(registry=self._registry)  # memory, CPU, open files under their usual names
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterable[Metric]:
        """Return the numbers as Prometheus' own objects."""
        from prometheus_client.metrics_core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            InfoMetricFamily,
        )

        numbers, status = self._metrics, self._status()
        yield InfoMetricFamily("openenv_environment", "The environment that is served.", value=self._information)
        for name, text, value in (
            ("openenv_sessions_active", "Sessions that hold a slot.", status.active_sessions),
            ("openenv_sessions_limit", "Sessions that the server allows at once.", status.max_sessions),
            ("openenv_sessions_waiting", "Callers that wait for a slot.", numbers.waiting),
            ("openenv_threads", "Threads of the server's process.", _threads()),
            (
                "openenv_event_loop_lag_max_seconds",
                "The latest that the event loop ran in the last minute or two.",
                self._lag.highest(time.monotonic()),
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        for name, text, label, counts in (
            ("openenv_sessions_opened", "Sessions opened.", "transport", numbers.opened),
            ("openenv_sessions_closed", "Sessions ended.", "reason", numbers.closed),
            ("openenv_sessions_refused", "Sessions that could not be opened.", "reason", numbers.refused),
        ):
            counter = CounterMetricFamily(name, text, labels=[label])
            for word, count in counts.items():
                counter.add_metric([word], count)
            yield counter
        for name, text, count in (
            ("openenv_sessions_reaped", "Sessions ended because nobody used them.", numbers.reaped),
            ("openenv_sessions_resumed", "Sessions taken up again after a lost connection.", numbers.resumed),
            ("openenv_calls_abandoned", "Threads left to a hook that did not return.", numbers.abandoned),
            ("openenv_late_replies", "Results that came after their caller gave up.", numbers.late_replies),
        ):
            yield CounterMetricFamily(name, text, value=count)
        durations = HistogramMetricFamily(
            "openenv_call_seconds", "How long calls on environments took.", labels=["kind", "outcome"]
        )
        for (kind, outcome), seconds in numbers.calls.items():
            durations.add_metric([kind, outcome], buckets=seconds.cumulative(), sum_value=seconds.total)
        yield durations
        lag = self._lag.seconds
        yield HistogramMetricFamily(
            "openenv_event_loop_lag_seconds",
            "How late the event loop ran.",
            buckets=lag.cumulative(),
            sum_value=lag.total,
        )


def install_metrics(
    app: FastAPI,
    metrics: ServerMetrics,
    status: Callable[[], ServerCapacityStatus],
    information: dict[str, str],
) -> None:
    """Give an application ``/metrics``, and measure its event loop for as long as it runs."""
    lag = LoopLag()
    page = MetricsPage(metrics, lag, status, information)
    app.state.metrics = metrics
    app.state.loop_lag = lag

    async def show(request: Request) -> Response:
        """Show the server's numbers in the text format of Prometheus."""
        content, content_type = page.render(request.headers.get("accept", ""))
        return Response(content, headers={"content-type": content_type})

    app.add_api_route("/metrics", show, methods=["GET"], include_in_schema=False)
    outer = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(running_app: Any) -> AsyncGenerator[Any]:
        async with outer(running_app) as state, anyio.create_task_group() as tasks:
            tasks.start_soon(measure_loop_lag, lag)
            try:
                yield state
            finally:
                tasks.cancel_scope.cancel()

    app.router.lifespan_context = lifespan


def _threads() -> int:
    try:
        return sum(1 for _ in _THREADS.iterdir())
    except OSError:  # not Linux: those that Python started
        return threading.active_count()
