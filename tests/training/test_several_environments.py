"""Two environments in one run: each row in its own, with its own tools, over the same batches of generations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from openenv_trl import ProcessProvider, RolloutLimits
from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import BatchSettings, EndReason, Trajectory, read_parquet
from openenv_trl.rollout.observer import Phase
from openenv_trl.training import (
    CurriculumLevel,
    EnvironmentRollout,
    EnvironmentSpec,
    StagedCurriculum,
    mix_datasets,
)

from .scripted import LIMITS, MakeTrainer, Replies, call

BALLS = '''
from typing import Any
from openenv_trl import Action, Environment, Observation, State, create_app, tool

class Balls(Environment[Action, Observation, State]):
    """Over after one throw; its reset may be told to fail."""
    SUPPORTS_CONCURRENT_SESSIONS = True
    def __init__(self): self._state = State()
    def reset(self, seed=None, episode_id=None, size=1, broken=False, **kwargs: Any):
        self._state = State(episode_id=episode_id); self._size = size
        if broken: raise RuntimeError("no balls left")
        if "environment" in kwargs or "natural" in kwargs: raise TypeError(f"not for this environment: {kwargs}")
        return Observation(metadata={})
    def step(self, action, timeout_s=None, **kwargs: Any): raise NotImplementedError
    @property
    def state(self): return self._state
    @tool
    def throw(self) -> Observation:
        "Throw the ball."
        return Observation(done=True, reward=10.0 * self._size)

app = create_app(Balls, Action, Observation, env_name="balls_env", max_concurrent_envs=64)
'''


@pytest.fixture(scope="module")
def balls_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("environments") / "balls_env"
    (folder / "server").mkdir(parents=True)
    (folder / "openenv.yaml").write_text("spec_version: 1\nname: balls_env\napp: server.app:app\nport: 8000\n")
    (folder / "__init__.py").touch()
    (folder / "server" / "__init__.py").touch()
    (folder / "server" / "app.py").write_text(BALLS)
    with ProcessProvider(str(folder)) as servers:
        yield servers.base_urls[0]


def mixed(**balls: Any) -> Dataset:
    cards = [{"prompt": "Play cards.", "seed": i, "natural": False} for i in range(4)]
    return mix_datasets({"cards": cards, "balls": [{"prompt": "Throw.", "seed": 100 + i, **balls} for i in range(4)]})


class Watcher:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.finished: dict[int, str] = {}

    def run_started(self, episodes: int, now: float) -> None:
        self.runs.append(episodes)

    def episode_finished(self, index: int, trajectory: Trajectory, now: float) -> None:
        self.finished[index] = trajectory.task.prompt[0]["content"]

    def episode_started(self, index: int, now: float) -> None: ...
    def phase_changed(self, index: int, phase: Phase, now: float) -> None: ...
    def turn_ended(self, *_: Any) -> None: ...
    def run_ended(self, now: float) -> None: ...


class MixedRun:
    def __init__(
        self, make_trainer: MakeTrainer, urls: dict[str, Any], tmp_path: Path, data: Dataset, **options: Any
    ) -> None:
        folder = tmp_path / "trajectories"
        self.prompts: list[str] = []
        self.widths: list[int] = []
        steps, batching = options.pop("steps", 1), options.pop("batching", None)
        with EnvironmentRollout(urls, **{"limits": LIMITS, "trajectory_dir": folder, **options}) as rollout:
            if batching is not None:
                rollout._environments._batching = batching
            self.trainer = make_trainer(rollout, rollout.prepare_dataset(data), max_steps=steps)
            replies = Replies(self.trainer, self._reply)
            generate = replies.generate

            def counted(prompt_ids: list[list[int]], *more: Any) -> Any:
                self.widths.append(len(prompt_ids))
                return generate(prompt_ids, *more)

            self.trainer._generate_single_turn = counted  # type: ignore[method-assign]
            self.trainer.train()
            self.curriculum = rollout.curricula.state()
        self.trajectories = read_parquet(folder)
        self.log = self.trainer.state.log_history[0]

    def of(self, environment: str) -> list[Trajectory]:
        return [t for t in self.trajectories if t.environment == environment]

    def _reply(self, _: int, text: str) -> str:
        self.prompts.append(text)
        return call("throw") if "throw()" in text else call("stand")


def test_each_row_is_played_in_its_own_environment_with_its_own_tools(
    make_trainer: MakeTrainer, blackjack_url: str, balls_url: str, tmp_path: Path
) -> None:
    watcher = Watcher()
    run = MixedRun(make_trainer, {"cards": blackjack_url, "balls": [balls_url]}, tmp_path, mixed(), observer=watcher)
    assert [len(run.of("cards")), len(run.of("balls"))] == [4, 4]
    assert {t.base_url for t in run.of("cards")} == {blackjack_url}
    assert {t.base_url for t in run.of("balls")} == {balls_url}
    assert {t.end_reason for t in run.trajectories} == {EndReason.DONE}
    assert {t.reward for t in run.of("balls")} == {10.0}
    cards, balls = ([t for t in run.prompts if word in t] for word in ("Play cards.", "Throw."))
    assert len(cards) == len(balls) == 4
    assert all("hit()" in text and "throw()" not in text for text in cards)
    assert all("throw()" in text and "hit()" not in text for text in balls)
    assert watcher.runs == [8], "one run, to whoever watches"
    expected = ["Play cards." if t.environment == "cards" else "Throw." for t in run.trajectories]
    assert [watcher.finished[i] for i in range(8)] == expected


def test_episodes_of_both_share_a_batch_of_the_model(
    make_trainer: MakeTrainer, blackjack_url: str, balls_url: str, tmp_path: Path
) -> None:
    whole = BatchSettings(batch_window_s=60.0, adaptive_window=False)  # a batch waits for all who play
    urls = {"cards": blackjack_url, "balls": balls_url}
    run = MixedRun(make_trainer, urls, tmp_path, mixed(), steps=2, batching=whole)
    assert run.widths == [8, 8], "each time all of both environments' episodes"


def test_numbers_are_logged_for_each_and_for_all(
    make_trainer: MakeTrainer, blackjack_url: str, balls_url: str, tmp_path: Path
) -> None:
    log = MixedRun(make_trainer, {"cards": blackjack_url, "balls": balls_url}, tmp_path, mixed()).log
    assert log["rollout/balls/reward"] == 10.0
    assert log["rollout/reward"] == pytest.approx((10.0 + log["rollout/cards/reward"]) / 2)
    assert log["rollout/episodes"] == 8
    assert log["rollout/cards/episodes"] == log["rollout/balls/episodes"] == 4


def test_an_environment_that_fails_leaves_the_other_to_be_trained_on(
    make_trainer: MakeTrainer, blackjack_url: str, balls_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = MixedRun(make_trainer, {"cards": blackjack_url, "balls": balls_url}, tmp_path, mixed(broken=True))
    assert {t.end_reason for t in run.of("balls")} == {EndReason.ENVIRONMENT_ERROR}
    assert {t.end_reason for t in run.of("cards")} == {EndReason.DONE}
    assert "rollout/balls/reward" not in run.log, "and no invented 0.0"
    warnings = [r.getMessage() for r in caplog.records if "episodes failed" in r.getMessage()]
    assert len(warnings) == 1
    assert "4 of 8" in warnings[0]
    assert "4 environment_error (reset: " in warnings[0]
    assert "no balls left" in warnings[0]


def test_each_environment_may_have_its_own_limits_and_curriculum(
    make_trainer: MakeTrainer, blackjack_url: str, balls_url: str, tmp_path: Path
) -> None:
    levels = tuple(CurriculumLevel(name=str(size), reset={"size": size}) for size in (1, 2))
    run = MixedRun(
        make_trainer,
        {
            "cards": EnvironmentSpec(base_urls=blackjack_url, limits=RolloutLimits(max_completion_tokens=2)),
            "balls": balls_url,
        },
        tmp_path,
        mixed(),
        curriculum={"balls": StagedCurriculum(levels=levels, window=4, threshold=1.0)},
        steps=2,
    )
    assert {t.end_reason for t in run.of("cards")} == {EndReason.MAX_TOKENS}
    assert [t.reward for t in run.of("balls")] == [10.0] * 4 + [20.0] * 4
    assert run.curriculum["balls"]["level"] == "2"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: {**row, "environment": "dice"}, r"'dice', which is not there.*'cards', 'balls'"),
        (lambda row: {**row, "environment": None}, "names no environment"),
    ],
)
def test_a_row_of_no_environment_is_refused_before_anything_is_generated(
    make_trainer: MakeTrainer, blackjack_url: str, balls_url: str, change: Any, words: str
) -> None:
    rows = [change(row) for row in mixed()]
    for row in rows:
        row["prompt"] = "Play."
    with EnvironmentRollout({"cards": blackjack_url, "balls": balls_url}) as rollout:
        with pytest.raises(ConfigurationError, match=words):
            rollout.prepare_dataset(rows)
        with EnvironmentRollout(blackjack_url) as other:
            trainer = make_trainer(rollout, other.prepare_dataset(rows))
        replies = Replies(trainer, lambda *_: call("stand"))
        with pytest.raises(ConfigurationError, match=words):
            trainer.train()
        assert not replies.sampled
