"""How a view of a batch looks: a panel for a terminal, a line for a log."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from openenv_trl.rollout.observer import Phase
from openenv_trl.rollout.watch.progress import BatchView, SlowEpisode

_BAR_WIDTH = 76  # with its frame, 80 columns
_COLOURS = {
    Phase.WAITING: "bright_black",
    Phase.RESET: "magenta",
    Phase.GENERATING: "blue",
    Phase.STEPPING: "yellow",
    Phase.DONE: "green",
    Phase.FAILED: "red",
}
_CELLS = {
    Phase.WAITING: "·",
    Phase.RESET: "░",
    Phase.GENERATING: "▒",
    Phase.STEPPING: "▓",
    Phase.DONE: "█",
    Phase.FAILED: "x",
}
"""Unlike without colours, too."""


def progress_panel(view: BatchView, title: str = "rollout") -> Panel:
    """The view for a terminal: a bar of the episodes by phase, the numbers, and the slowest episodes."""
    rows: list[RenderableType] = [_bar(view), _legend(view), Text(" · ".join(_numbers(view)))]
    if view.slowest:
        rows.append(_slow_table(view.slowest))
    time_left = f", about {_seconds(view.remaining_s)} left" if view.remaining_s else ""
    heading = f"{title}: {view.ended}/{view.episodes} episodes, {_seconds(view.elapsed_s)}{time_left}"
    return Panel(Group(*rows), title=Text(heading), title_align="left", width=_BAR_WIDTH + 4)


def progress_line(view: BatchView, title: str = "rollout") -> str:
    """The view in one line, for logs."""
    parts = [f"{title}: {view.ended}/{view.episodes} episodes after {_seconds(view.elapsed_s)}"]
    running = [f"{count} {phase.value}" for phase, count in view.phases.items() if count and not phase.is_end]
    parts += [", ".join(running)] if running else []
    parts += _numbers(view)
    if view.slowest:
        slow = view.slowest[0]
        parts.append(f"slowest episode {slow.index}: {slow.phase.value} for {_seconds(slow.phase_s)}")
    if view.remaining_s:
        parts.append(f"about {_seconds(view.remaining_s)} left")
    return "; ".join(parts)


def _numbers(view: BatchView) -> Iterator[str]:
    yield f"{view.turns:,} turns"
    if view.reward is not None:
        yield f"reward {view.reward:+.3f} ({view.rewarded} episodes)"
    if view.failures:
        yield "failed: " + ", ".join(f"{reason} {count}" for reason, count in view.failures.items())
    if view.slowest_phase is not None:
        yield f"most time in {view.slowest_phase.value} ({view.slowest_phase_share:.0%})"
    if view.last_run_s is not None and view.ended < view.episodes:
        yield f"last batch {_seconds(view.last_run_s)}"


def _bar(view: BatchView) -> Text:
    """One cell for so many episodes, coloured by phase, the ended ones first; no phase that is there is left out."""
    order = (Phase.DONE, Phase.FAILED, Phase.STEPPING, Phase.GENERATING, Phase.RESET, Phase.WAITING)
    bar, passed, drawn = Text(), 0, 0
    for phase in order:
        count = view.phases[phase]
        passed += count
        end = min(max(round(_BAR_WIDTH * passed / max(view.episodes, 1)), drawn + bool(count)), _BAR_WIDTH)
        bar.append(_CELLS[phase] * (end - drawn), _COLOURS[phase])
        drawn = end
    return bar


def _legend(view: BatchView) -> Text:
    legend = Text()
    for phase, count in view.phases.items():
        legend.append("  " if legend else "")
        legend.append(f"{_CELLS[phase]} ", _COLOURS[phase])
        legend.append(f"{phase.value} {count}", "" if count else "dim")
    return legend


def _slow_table(slowest: tuple[SlowEpisode, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("slowest", "phase", "for", "turns", "episode"):
        table.add_column(name, justify="left" if name in ("slowest", "phase") else "right")
    for slow in slowest:
        phase = Text(slow.phase.value, _COLOURS[slow.phase])
        table.add_row(f"#{slow.index}", phase, _seconds(slow.phase_s), str(slow.turns), _seconds(slow.episode_s))
    return table


def _seconds(seconds: float) -> str:
    """So many seconds, as people say it: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
