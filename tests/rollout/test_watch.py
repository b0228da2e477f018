"""Promises of watching: what is shown is what the episodes do, and nothing of it stays when the run is over."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from openenv_trl import ProcessProvider
from openenv_trl.client import fetch_schema
from openenv_trl.errors import ConfigurationError, EnvironmentExecutionError, PolicyError
from openenv_trl.rollout import EndReason, RandomActionPolicy, RolloutEngine, Task, Trajectory, Turn
from openenv_trl.rollout.observer import Observers, Phase
from openenv_trl.rollout.play import open_pool
from openenv_trl.rollout.watch import BatchProgress, RolloutWatch, progress_line, progress_panel
from openenv_trl.types import StepResult

BLACKJACK = Path(__file__).parents[2] / "environments" / "blackjack_env"
PROMPT = [{"role": "user", "content": "Play."}]


def ended(reward: float | None = 1.0, reason: EndReason = EndReason.DONE) -> Trajectory:
    turns = [] if reward is None else [Turn(actions=[{}], rewards=[reward])]
    return Trajectory(Task(PROMPT), [], [], [], None, turns, reason)


def batch(episodes: int = 4, started: int | None = None) -> BatchProgress:
    progress = BatchProgress()
    progress.run_started(episodes, 100.0)
    for index in range(episodes if started is None else started):
        progress.episode_started(index, 100.0)
    return progress


def test_episodes_are_counted_by_what_they_do() -> None:
    progress = batch(5)
    for index, phase in enumerate([Phase.RESET, Phase.GENERATING, Phase.STEPPING]):
        progress.phase_changed(index, phase, 101.0)
    progress.episode_finished(3, ended(0.5), 102.0)
    progress.episode_finished(4, ended(None, EndReason.STEP_TIMEOUT), 102.0)
    progress.turn_ended(1, Turn(), 102.0)
    view = progress.view(104.0)
    assert view.phases == dict.fromkeys(Phase, 1) | {Phase.WAITING: 0}
    assert (view.ended, view.elapsed_s, view.turns) == (2, 4.0, 1)
    assert (view.reward, view.rewarded, view.failures) == (0.5, 1, {"step_timeout": 1})


def test_the_slowest_are_those_whose_turn_came_first_and_is_not_over() -> None:
    progress = batch(4, started=0)
    for index, now in ((2, 101.0), (0, 103.0), (1, 102.0)):  # 3 waits for its turn
        progress.episode_started(index, now)
        progress.phase_changed(index, Phase.STEPPING, now + 1)
    progress.turn_ended(2, Turn(), 104.0)
    slowest = progress.view(110.0, slowest=2).slowest
    assert [(s.index, s.phase, s.phase_s, s.episode_s, s.turns) for s in slowest] == [
        (2, Phase.STEPPING, 8.0, 9.0, 1),
        (1, Phase.STEPPING, 7.0, 8.0, 0),
    ]
    progress.episode_finished(2, ended(), 111.0)
    assert [s.index for s in progress.view(112.0).slowest] == [1, 0]


def test_the_slowest_phase_is_named_while_it_lasts() -> None:
    progress = batch(2, started=1)
    assert progress.view(100.0).slowest_phase is None
    progress.phase_changed(0, Phase.GENERATING, 101.0)
    progress.phase_changed(0, Phase.STEPPING, 102.0)
    view = progress.view(108.0)
    assert (view.slowest_phase, view.slowest_phase_share) == (Phase.STEPPING, 0.75), (
        "one that has no turn does not count"
    )


def test_the_time_left_is_said_only_where_it_is_no_guess() -> None:
    progress = batch(100, started=10)
    for index in range(30):
        assert progress.view(100.0 + index).remaining_s is None or index >= 10, "the first to end are the short ones"
        progress.episode_finished(index, ended(), 100.0 + index)
        progress.episode_started(index + 10, 100.0 + index)
    assert progress.view(130.0).remaining_s == 70.0
    for index in range(30, 90):
        progress.episode_finished(index, ended(), 160.0)
        progress.episode_started(min(index + 10, 99), 160.0)
    assert progress.view(190.0).remaining_s is None, "the last ones run side by side"
    progress.run_ended(200.0)
    progress.run_started(8, 300.0)
    view = progress.view(301.0)
    assert (view.last_run_s, view.remaining_s, view.ended) == (100.0, None, 0)


def test_what_is_told_after_the_end_changes_nothing() -> None:
    progress = batch(1)
    progress.episode_finished(0, ended(), 101.0)
    progress.phase_changed(0, Phase.STEPPING, 102.0)
    progress.episode_finished(0, ended(None, EndReason.SURPLUS), 103.0)
    view = progress.view(104.0)
    assert (view.phases[Phase.DONE], view.ended, view.failures) == (1, 1, {})


def test_episodes_beyond_the_first_ones_are_counted_too() -> None:
    progress = batch(2)
    progress.episode_started(7, 101.0)
    progress.phase_changed(7, Phase.RESET, 101.0)
    assert (progress.view(102.0).episodes, progress.view(102.0).phases[Phase.RESET]) == (3, 1)


EVENTS = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from([*Phase, "start", "turn", "finish", "fail"]), st.floats(0, 5)),
    max_size=40,
)


@given(EVENTS)
def test_whatever_is_told_the_numbers_are_whole(events: list[tuple[int, Any, float]]) -> None:
    progress, now = batch(4, started=0), 100.0
    for index, event, seconds in events:
        now += seconds
        if event == "start":
            progress.episode_started(index, now)
        elif event == "turn":
            progress.turn_ended(index, Turn(), now)
        elif event in ("finish", "fail"):
            end = EndReason.DONE if event == "finish" else EndReason.CAPACITY
            progress.episode_finished(index, ended(1.0, end), now)
        else:
            progress.phase_changed(index, event, now)
    view = progress.view(now)
    assert sum(view.phases.values()) == view.episodes >= 4
    assert 0.0 <= view.slowest_phase_share <= 1.0
    assert all(0.0 <= each.phase_s <= view.elapsed_s for each in view.slowest)
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(progress_panel(view))
    bar = console.export_text().splitlines()[1]
    for phase, cell in zip(Phase, "·░▒▓█x", strict=True):
        assert (cell in bar) == (view.phases[phase] > 0), "no phase that is there is left out"
    assert len(bar) == 80
    assert f"{view.ended}/{view.episodes} episodes" in progress_line(view)


class Recorder:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def run_started(self, episodes: int, now: float) -> None:
        self.heard.append(("run", episodes))

    def episode_started(self, index: int, now: float) -> None:
        self.heard.append("start")

    def phase_changed(self, index: int, phase: Phase, now: float) -> None:
        self.heard.append(phase.value)

    def turn_ended(self, index: int, turn: Turn, now: float) -> None:
        self.heard.append(("turn", list(turn.observations)))

    def episode_finished(self, index: int, trajectory: Trajectory, now: float) -> None:
        self.heard.append(("end", trajectory.end_reason.value))

    def run_ended(self, now: float) -> None:
        self.heard.append("run ended")


def test_the_engine_tells_each_phase_of_an_episode_in_order(
    make_engine: Any, say: Any, tasks: Any, tool_call: Any
) -> None:
    failures = iter([EnvironmentExecutionError("it broke")])

    async def breaks_once(session: Any, call: str, argument: Any) -> StepResult[Any]:
        if call == "step" and (error := next(failures, None)):
            raise error
        return StepResult({"message": "Go on."}, 1.0 if call == "step" else None, done=session.steps == 2)

    engine, _ = make_engine(breaks_once, limits={"max_attempts": 2})
    first, second = Recorder(), Recorder()

    async def run() -> None:
        await engine.run(tasks(1), say(tool_call("hit")), observer=Observers([first, second]))

    anyio.run(run)
    attempt = ["reset", "generating", "stepping"]
    assert first.heard == [
        *(("run", 1), "start", *attempt, "waiting", *attempt),
        *(("turn", ["Go on."]), "generating", "stepping", ("turn", ["Go on."]), ("end", "done"), "run ended"),
    ]
    assert second.heard == first.heard


@pytest.mark.parametrize(("said", "end"), [("no action", "no_action"), ("x" * 3000, "max_tokens")])
def test_a_turn_without_an_action_ends_too(make_engine: Any, say: Any, tasks: Any, said: str, end: str) -> None:
    recorder = Recorder()

    async def run() -> None:
        await make_engine()[0].run(tasks(1), say(said), observer=recorder)

    anyio.run(run)
    assert recorder.heard[-3:] == [("turn", []), ("end", end), "run ended"]


class Broken:
    async def generate(self, prompts: Any, sampling: Any) -> Any:
        raise ValueError("out of memory")


def watching() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "rollout-watch"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_that_raises_is_over_for_its_watch_too(make_engine: Any, tasks: Any, terminal: bool) -> None:
    screen = Screen()
    recorder, watch = Recorder(), RolloutWatch(Console(file=screen, force_terminal=terminal, width=100))

    async def run() -> None:
        await make_engine()[0].run(tasks(2), Broken(), observer=Observers([recorder, watch]))

    with pytest.raises(PolicyError, match="out of memory"):
        anyio.run(run)
    assert recorder.heard[-1] == "run ended"
    assert watching() == []
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h"), "the cursor is back"


class Screen(io.StringIO):
    """Where a watch writes; waits until something is written."""

    def __init__(self) -> None:
        super().__init__()
        self._written = threading.Condition()

    def write(self, text: str) -> int:
        with self._written:
            self._written.notify_all()
            return super().write(text)

    def wait_for(self, text: str) -> None:
        with self._written:
            assert self._written.wait_for(lambda: text in self.getvalue(), timeout=60), self.getvalue()

    async def shows(self, text: str) -> None:
        await anyio.to_thread.run_sync(self.wait_for, text)


def steps_when(screen: Screen, text: str) -> Any:
    """An environment that steps when the screen shows something."""

    async def behave(session: Any, call: str, argument: Any) -> StepResult[Any]:
        if call == "step":
            await screen.shows(text)
        return StepResult({"message": "Go on."}, 1.0 if call == "step" else None, done=call == "step")

    return behave


def test_a_terminal_shows_the_batch_while_it_lasts_and_is_then_as_it_was(
    make_engine: Any, say: Any, tasks: Any, tool_call: Any
) -> None:
    screen = Screen()
    watch = RolloutWatch(Console(file=screen, force_terminal=True, width=100), refresh_interval_s=0.01)
    engine, _ = make_engine(steps_when(screen, "stepping 3"))

    async def run() -> None:
        await engine.run(tasks(3), say(tool_call("hit")), observer=watch)

    anyio.run(run)
    shown = screen.getvalue()
    assert "#0" in shown, "the slowest"
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1, "the cursor is back"
    assert shown.rstrip().endswith("\x1b[2K"), "what was drawn is wiped away"
    assert watching() == []
    view = watch.progress.view(0.0)
    assert (view.ended, view.reward, view.turns) == (3, 1.0, 3)


def test_a_log_gets_a_line_now_and_then_and_no_more(make_engine: Any, say: Any, tasks: Any, tool_call: Any) -> None:
    log = Screen()
    watch = RolloutWatch(Console(file=log, width=60), line_interval_s=0.05, title="[evaluation]")
    engine, _ = make_engine(steps_when(log, "2 stepping"))

    async def run() -> None:
        await engine.run(tasks(2), say(tool_call("hit")), observer=watch)

    anyio.run(run)
    first = log.getvalue().splitlines()[0]
    assert first.startswith("[evaluation]: 0/2 episodes after"), "in one line, however narrow, and without markup"
    assert "\x1b" not in log.getvalue()
    assert watching() == []

    quiet = io.StringIO()
    rare = RolloutWatch(Console(file=quiet), line_interval_s=1000.0)

    async def run_many() -> None:
        for _ in range(3):
            await make_engine()[0].run(tasks(2), say(tool_call("hit")), observer=rare)

    anyio.run(run_many)
    assert quiet.getvalue() == "", "short batches do not fill a log"


@pytest.mark.parametrize("settings", [{"refresh_interval_s": 0.0}, {"line_interval_s": -1.0}])
def test_an_interval_must_be_above_zero(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="above 0"):
        RolloutWatch(**settings)


@pytest.fixture(scope="module")
def blackjack_url() -> Iterator[str]:
    with ProcessProvider(str(BLACKJACK), env_vars={"MAX_CONCURRENT_ENVS": "64"}) as servers:
        yield servers.base_urls[0]


def test_a_batch_over_a_real_server_is_seen_from_its_beginning_to_its_end(blackjack_url: str, tokenizer: Any) -> None:
    screen = Screen()
    watch = RolloutWatch(Console(file=screen, force_terminal=True, width=100), refresh_interval_s=0.02)

    class PlaysWhenSeen(RandomActionPolicy):
        async def generate(self, prompts: Any, sampling: Any) -> Any:
            await screen.shows("generating 16")
            return await super().generate(prompts, sampling)

    async def run() -> list[Trajectory]:
        async with open_pool([blackjack_url], sessions_per_server=16) as pool:
            engine = RolloutEngine(pool, tokenizer, max_concurrent_episodes=16, fetch_schema=fetch_schema)
            await engine.prepare()
            tasks = [Task(PROMPT, {"seed": index}, index=index) for index in range(64)]
            with anyio.fail_after(120):
                return await engine.run(tasks, PlaysWhenSeen(engine.template, engine.actions, seed=1), observer=watch)

    trajectories = anyio.run(run)
    view = watch.progress.view(1e9)
    rewards = [trajectory.reward for trajectory in trajectories if trajectory.reward is not None]
    assert (view.phases[Phase.DONE], view.rewarded) == (64, 64)
    assert view.turns == sum(len(trajectory.turns) for trajectory in trajectories)
    assert view.reward == pytest.approx(sum(rewards) / 64)
    assert "waiting 48" in screen.getvalue(), "those whose turn had not come"
