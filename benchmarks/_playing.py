"""What a load process does: one function for each kind of job. Imported in a load process only.

A step is counted, and its latency taken, where it ended within the window.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import os
import statistics
import threading
import time
import tracemalloc
from typing import Any
from urllib.parse import urlsplit

import _process
import _sessions
from _load import Job

WARM_SESSIONS = 64  # opened and closed again before memory is looked at: what is made once is made then
SETTLE_S = 1.0
LONGEST_WINDOW_S = 30.0


class Window:
    """The seconds in which figures are taken, and the figures."""

    def __init__(self, job: Job) -> None:
        self.recording = False
        self.over = False
        self.latencies: list[float] = []
        self.failures: list[str] = []
        self._job = job
        self._idle_kb = _process.resident_kb(job.server_pid)

    def begin(self) -> None:
        self._server_cpu, self._own_cpu = _process.cpu_seconds(self._job.server_pid), _process.cpu_seconds(os.getpid())
        self._begun_at = time.perf_counter()
        self.recording = True

    def end(self) -> None:
        self.recording, self.over = False, True
        self._seconds = time.perf_counter() - self._begun_at
        self._own_cpu = _process.cpu_seconds(os.getpid()) - self._own_cpu
        self._server_cpu = _process.cpu_seconds(self._job.server_pid) - self._server_cpu
        self._threads = _process.threads(self._job.server_pid)
        self._grown_kb = _process.resident_kb(self._job.server_pid) - self._idle_kb

    async def pass_by(self, warm: asyncio.Event | None = None) -> None:
        """Take the figures: from the event and ``warm_s`` on, for ``duration_s``, longer where little was done."""
        if warm is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(warm.wait(), LONGEST_WINDOW_S)
        await asyncio.sleep(self._job.warm_s)
        self.begin()
        await asyncio.sleep(self._job.duration_s)
        least, latest = 2 * self._job.sessions, self._begun_at + LONGEST_WINDOW_S
        while len(self.latencies) < least and time.perf_counter() < latest:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # an event would cost each step its test
        self.end()

    def figures(self, what: str) -> dict[str, float]:
        count = len(self.latencies)
        if not count:
            raise SystemExit(f"nothing was done within the time: {self.failures[:3]}")
        return {
            f"{what}_per_s": count / self._seconds,
            **percentiles(self.latencies),
            f"server_cpu_s_per_10k_{what}": self._server_cpu / count * 10_000,
            f"client_cpu_s_per_10k_{what}": self._own_cpu / count * 10_000,
            "server_kb_per_session": self._grown_kb / self._job.sessions,
            "server_threads": self._threads,
            "failures": len(self.failures),
        }


async def steps(job: Job) -> dict[str, float]:
    """Sessions that step without a pause."""
    window = Window(job)
    sessions = await opened(job)

    async def play(session: Any) -> None:
        step = _sessions.step_of(job, session)
        _sessions.check(job, await step())
        while not window.over:
            begin = time.perf_counter()
            await step()
            if window.recording:
                window.latencies.append(time.perf_counter() - begin)

    await asyncio.gather(window.pass_by(), *map(play, sessions))
    return window.figures("steps")


def blocking_steps(job: Job) -> dict[str, float]:
    """The same with blocking clients, a thread each."""
    window = Window(job)
    sessions = [_sessions.client(job, number).sync() for number in range(job.sessions)]

    def play(session: Any) -> None:
        session.connect()
        session.reset()
        step: Any = _sessions.step_of(job, session)
        _sessions.check(job, step())
        while not window.over:
            begin = time.perf_counter()
            step()
            if window.recording:
                window.latencies.append(time.perf_counter() - begin)

    threads = [threading.Thread(target=play, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    time.sleep(job.warm_s)
    window.begin()
    time.sleep(job.duration_s)
    window.end()
    for thread in threads:
        thread.join()
    return window.figures("steps")


async def episodes(job: Job) -> dict[str, float]:
    """Episodes one after another: a new session, a reset, four steps, the close."""
    window = Window(job)
    first = asyncio.Event()  # somebody has played twice, so that nobody is the first any more

    async def play(number: int) -> None:
        played = 0
        while not window.over:
            begin = time.perf_counter()
            try:
                async with _sessions.client(job, number) as session:
                    await session.reset()
                    step = _sessions.step_of(job, session)
                    for _ in range(4):
                        result = await step()
                _sessions.check(job, result)
            except Exception as error:  # what fails under load is a figure too
                window.failures.append(f"{type(error).__name__}: {error}")
                continue
            played += 1
            if window.recording:
                window.latencies.append(time.perf_counter() - begin)
            elif played > 1:
                first.set()

    await asyncio.gather(window.pass_by(first), *map(play, range(job.sessions)))
    return window.figures("episodes")


async def idle(job: Job) -> dict[str, float]:
    """Sessions that are opened and reset, and then do nothing."""
    for session in await opened(job, range(WARM_SESSIONS)):
        await _sessions.step_of(job, session)()
        await session.close()
    if job.traced:
        tracemalloc.start()
    await asyncio.sleep(SETTLE_S)
    before = holdings(job)
    begin = time.perf_counter()
    sessions = [_sessions.client(job, number) for number in range(job.sessions)]
    await asyncio.gather(*(session.connect() for session in sessions))
    connected = time.perf_counter()
    await asyncio.gather(*(session.reset() for session in sessions))
    ready = time.perf_counter()
    await asyncio.sleep(SETTLE_S)
    after = holdings(job)
    threads = _process.threads(job.server_pid)
    grown = {f"{name}_per_session": (after[name] - before[name]) / job.sessions for name in before}
    result = await _sessions.step_of(job, sessions[-1])()
    _sessions.check(job, result)
    begin_close = time.perf_counter()
    await asyncio.gather(*(session.close() for session in sessions))
    return {
        "open_s": connected - begin,
        "reset_s": ready - connected,
        "open_and_reset_s": ready - begin,
        "close_s": time.perf_counter() - begin_close,
        "server_threads": threads,
        **grown,
    }


async def marathon(job: Job) -> dict[str, float]:
    """Sessions that are opened and reset, and then all take some steps at once; failures are counted."""
    latencies: list[float] = []
    failures: list[str] = []
    begin = time.perf_counter()
    sessions = await opened(job)
    ready = time.perf_counter()

    async def play(session: Any) -> bool:
        step = _sessions.step_of(job, session)
        try:
            for _ in range(job.steps):
                at = time.perf_counter()
                _sessions.check(job, await step())
                latencies.append(time.perf_counter() - at)
        except Exception as error:  # what fails under load is a figure too
            failures.append(f"{type(error).__name__}: {error}")
            return False
        return True

    succeeded = sum(await asyncio.gather(*map(play, sessions)))
    over = time.perf_counter()
    return {
        "open_and_reset_s": ready - begin,
        "success_share": succeeded / job.sessions,
        "steps_per_s": len(latencies) / (over - ready),
        **percentiles(latencies),
        "server_rss_mb": _process.resident_kb(job.server_pid) / 1024,
        "client_rss_mb": _process.resident_kb(os.getpid()) / 1024,
        "server_threads": _process.threads(job.server_pid),
    }


async def opened(job: Job, numbers: range | None = None) -> list[Any]:
    """Sessions that are connected and reset."""
    sessions = [_sessions.client(job, number) for number in numbers or range(job.sessions)]
    await asyncio.gather(*(session.connect() for session in sessions))
    await asyncio.gather(*(session.reset() for session in sessions))
    return sessions


def percentiles(latencies: list[float]) -> dict[str, float]:
    """The median, the 99th percentile and the greatest in milliseconds."""
    ordered = sorted(latencies)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"p50_ms": statistics.median(ordered) * 1e3, "p99_ms": last * 1e3, "longest_ms": ordered[-1] * 1e3}


def holdings(job: Job) -> dict[str, float]:
    """What server and client hold, in KB."""
    gc.collect()
    if job.traced:
        address = urlsplit(job.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port)
        connection.request("GET", "/traced")
        server = int(connection.getresponse().read())
        connection.close()
        return {"server_traced_kb": server / 1024, "client_traced_kb": tracemalloc.get_traced_memory()[0] / 1024}
    return {
        "server_rss_kb": _process.resident_kb(job.server_pid),
        "server_pss_kb": _process.proportional_kb(job.server_pid),
        "client_rss_kb": _process.resident_kb(os.getpid()),
        "client_pss_kb": _process.proportional_kb(os.getpid()),
    }
