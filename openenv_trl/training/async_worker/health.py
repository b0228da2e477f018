"""Whether the worker works: by what it brought about, not by whether its thread still breathes.

A heartbeat that ticks while generation hangs says that all is well. Here a worker with work to do must have finished
something lately, a generation or a step; one that waits for the trainer need not have; and a loop that does not get to
run at all is told by a tick of its own. It owns no clock: the time comes with each event.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Health:
    """What has happened, and when. Times are of one monotonic clock."""

    started: bool = False
    inflight: int = 0
    """Groups in flight."""
    progressed_at: float = 0.0
    progress: str = "nothing yet"
    ticked_at: float = 0.0
    outage: str = ""
    """What the policy's last failure was, while nothing succeeds."""
    death: BaseException | None = None

    def start(self, now: float) -> None:
        """The worker starts."""
        self.started, self.death, self.outage, self.inflight = True, None, "", 0
        self.ticked_at = now
        self.progressed(now, "the start")

    def stop(self) -> None:
        """The worker was stopped."""
        self.started = False

    def tick(self, now: float) -> None:
        """The event loop has run."""
        self.ticked_at = now

    def progressed(self, now: float, what: str) -> None:
        """Something was finished: a generation, a step, a group."""
        self.progressed_at, self.progress, self.outage = now, what, ""

    def groups_inflight(self, count: int, now: float) -> None:
        """So many groups are played now. Work that begins after idleness has just begun."""
        if not self.inflight and count:
            self.progressed_at = now
        self.inflight = count

    def died(self, error: BaseException) -> None:
        """The worker has ended, and why."""
        self.death = error

    def problem(self, now: float, stale_after_s: float) -> str | None:
        """What is wrong; None if nothing is.

        Args:
            now: The time.
            stale_after_s: Seconds without any progress that are too many.
        """
        if self.death is not None:
            return f"The rollout worker has ended: {self.death or type(self.death).__name__}"
        if not self.started:
            return "The rollout worker does not run: it was not started, or has been stopped."
        if (silent := now - self.ticked_at) > stale_after_s:
            return (
                f"The rollout worker's event loop has not run for {silent:.0f} s: something blocks it. Look for an "
                "async reward function or policy that calls blocking code."
            )
        if self.inflight and (idle := now - self.progressed_at) > stale_after_s:
            because = f" The inference server's last failure: {self.outage}" if self.outage else ""
            return (
                f"The rollout worker has finished nothing for {idle:.0f} s, with {self.inflight} groups in flight; the "
                f"last was {self.progress}.{because} See whether the inference server and the environment servers "
                "answer; if a generation may take so long, raise heartbeat_stale_after_s."
            )
        return None
