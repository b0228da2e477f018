"""Shows a batch while it is played: a live panel where the output is a terminal, else a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.observer import Phase
from openenv_trl.rollout.trajectory import Trajectory, Turn
from openenv_trl.rollout.watch.progress import BatchProgress, BatchView
from openenv_trl.rollout.watch.screen import progress_line, progress_panel


class RolloutWatch:
    """A `RolloutObserver` that shows each run while it lasts.

    In a terminal a panel is drawn in place and is gone when the run ends. Elsewhere (a log file, a pipe, a dumb
    terminal) it prints one line every ``line_interval_s``, and none sooner, however many runs there are. A thread
    draws, so that a batch in which nothing moves is seen to stand still; it lives as long as the run.

    Args:
        console: Where to; standard output if None.
        refresh_interval_s: Seconds between two drawings of the panel. Each costs some milliseconds of one core.
        line_interval_s: Seconds between two lines.
        title: What the run is called.
        slowest: How many slow episodes the panel names.

    Raises:
        ConfigurationError: An interval is not above zero.

    Example:
        >>> trajectories = await engine.run(tasks, policy, observer=RolloutWatch())
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        refresh_interval_s: float = 0.5,
        line_interval_s: float = 10.0,
        title: str = "rollout",
        slowest: int = 3,
    ) -> None:
        if refresh_interval_s <= 0 or line_interval_s <= 0:
            raise ConfigurationError(
                f"refresh_interval_s={refresh_interval_s:g} and line_interval_s={line_interval_s:g} must be above 0."
            )
        self.progress = BatchProgress()
        """Where the run stands."""
        self._console = console or Console()
        self._lives = self._console.is_terminal and not self._console.is_dumb_terminal
        self._refresh_interval_s = refresh_interval_s
        self._line_interval_s = line_interval_s
        self._title = title
        self._slowest = slowest
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._clock_offset = 0.0
        self._last_line = time.monotonic()

    def run_started(self, episodes: int, now: float) -> None:
        """Begins to show."""
        self._stop()
        self._clock_offset = now - time.monotonic()
        with self._lock:
            self.progress.run_started(episodes, now)
        self._ended = threading.Event()
        show = self._draw if self._lives else self._print
        self._thread = threading.Thread(target=show, args=(self._ended,), name="rollout-watch", daemon=True)
        self._thread.start()

    def episode_started(self, index: int, now: float) -> None:
        """Noted."""
        with self._lock:
            self.progress.episode_started(index, now)

    def phase_changed(self, index: int, phase: Phase, now: float) -> None:
        """Noted."""
        with self._lock:
            self.progress.phase_changed(index, phase, now)

    def turn_ended(self, index: int, turn: Turn, now: float) -> None:
        """Noted."""
        with self._lock:
            self.progress.turn_ended(index, turn, now)

    def episode_finished(self, index: int, trajectory: Trajectory, now: float) -> None:
        """Noted."""
        with self._lock:
            self.progress.episode_finished(index, trajectory, now)

    def run_ended(self, now: float) -> None:
        """Ends to show; waits until the terminal is as it was."""
        with self._lock:
            self.progress.run_ended(now)
        self._stop()
        self._print_when_due()

    def _stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _view(self) -> BatchView:
        with self._lock:
            return self.progress.view(time.monotonic() + self._clock_offset, slowest=self._slowest)

    def _draw(self, ended: threading.Event) -> None:
        live = Live(console=self._console, auto_refresh=False, transient=True)
        with live:
            self._each(
                ended,
                self._refresh_interval_s,
                lambda: live.update(progress_panel(self._view(), self._title), refresh=True),
            )

    def _print(self, ended: threading.Event) -> None:
        self._each(ended, min(self._line_interval_s, 1.0), self._print_when_due)

    @staticmethod
    def _each(ended: threading.Event, interval_s: float, do: Callable[[], None]) -> None:
        while not ended.wait(interval_s):
            do()

    def _print_when_due(self) -> None:
        now = time.monotonic()
        if now - self._last_line >= self._line_interval_s:
            self._last_line = now
            self._console.print(progress_line(self._view(), self._title), highlight=False, markup=False, soft_wrap=True)
