"""Equal seeds and actions give equal frames: in one instance, in another process, and whatever was played before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from atari_env.models import AtariAction
from atari_env.server.atari_environment import environment_class
from atari_env.server.settings import AtariSettings

CHANCE: dict[str, Any] = {"repeat_action_probability": 0.25, "noop_max": 30, "frameskip": (2, 6)}
STEPS = 300


@pytest.mark.parametrize("game", ["pong", "breakout", "qbert", "tetris"])
def test_equal_seeds_give_equal_frames_whatever_was_played_before(fingerprint_of: Any, game: str) -> None:
    environment = environment_class(game)()
    first = fingerprint_of(environment, STEPS, seed=7, **CHANCE)
    fingerprint_of(environment, 120, choices=4, seed=8, mode=None, full_action_space=True)
    assert fingerprint_of(environment, STEPS, seed=7, **CHANCE) == first
    environment.close()
    # The next one gets the console that was just put back.
    assert fingerprint_of(environment_class(game)(), STEPS, seed=7, **CHANCE) == first
    assert fingerprint_of(environment_class(game)(), STEPS, seed=9, **CHANCE) != first


def test_equal_seeds_give_equal_frames_in_another_process(fingerprint_of: Any) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from conftest import fingerprint;"
        "from atari_env.server.atari_environment import environment_class;"
        f"print(fingerprint(environment_class('breakout')(), {STEPS}, seed=7, **{CHANCE!r}))"
    )
    here = str(Path(__file__).parent)
    run = subprocess.run([sys.executable, "-c", code, here], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == fingerprint_of(environment_class("breakout")(), STEPS, seed=7, **CHANCE)


def test_a_seed_that_was_drawn_is_told_and_plays_the_same_again(fingerprint_of: Any) -> None:
    environment = environment_class("pong")(AtariSettings(**CHANCE))
    first = fingerprint_of(environment, 80)
    seed = environment.state.seed
    assert fingerprint_of(environment, 80) != first
    assert fingerprint_of(environment, 80, seed=seed) == first


def test_a_task_seed_decides_the_beginning_and_the_seed_the_rest() -> None:
    environment = environment_class("pong")(AtariSettings(noop_max=30, repeat_action_probability=0.5))
    beginnings: set[int] = set()
    for task_seed in range(6):
        frames = {environment.reset(seed=seed, task_seed=task_seed).frame_number for seed in range(5)}
        assert len(frames) == 1
        beginnings |= frames
    assert len(beginnings) > 2
    assert beginnings <= set(range(1, 31))
    ends: set[bytes] = set()
    for seed in range(5):
        environment.reset(seed=seed, task_seed=0)
        for number in range(30):
            seen = environment.step(AtariAction(action_id=2 + number % 2))
        ends.add(seen.screen.tobytes())
    assert len(ends) > 1


def test_sticky_actions_repeat_as_often_as_they_say() -> None:
    # Pong's paddle moves while the joystick is held to one side: with every frame sticky it never leaves its place.
    environment = environment_class("pong")()
    still = environment.reset(seed=0, obs_type="ram", repeat_action_probability=1.0).screen[51]
    for _ in range(20):
        assert environment.step(AtariAction(action_id=2)).screen[51] == still
    environment.reset(seed=0, obs_type="ram")
    for _ in range(20):
        seen = environment.step(AtariAction(action_id=2))
    assert seen.screen[51] != still


def test_the_share_of_sticky_frames_is_the_probability() -> None:
    episode_of = environment_class("pong")(AtariSettings(repeat_action_probability=0.25, frameskip=1))
    episode_of.reset(seed=3)
    episode = episode_of._episode
    assert episode is not None
    repeated = 0
    for number in range(3000):
        if episode.over:
            break
        wanted = 2 + number % 2
        episode.step(wanted)
        repeated += episode._held is not episode.actions[wanted]
    # The joystick alternates, so that two repeats in a row hold what is wanted again: p / (1 + p) of the frames do not.
    assert abs(repeated / 3000 - 0.2) < 0.035  # some five standard deviations


def test_a_range_of_frames_is_drawn_from_evenly_without_its_end() -> None:
    environment = environment_class("pong")()
    before = environment.reset(seed=1, frameskip=(2, 5)).frame_number
    drawn: list[int] = []
    for _ in range(200):
        seen = environment.step(AtariAction(action_id=0))
        drawn.append(seen.frame_number - before)
        before = seen.frame_number
    assert set(drawn) == {2, 3, 4}
    assert min(map(drawn.count, (2, 3, 4))) > 40
