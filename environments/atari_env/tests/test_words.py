"""The words say what the pixels show: every named thing is where its colour is, and the rest is drawn as a grid."""

from __future__ import annotations

import itertools
import random
import re
import statistics
from collections import defaultdict

import numpy as np
import pytest
from atari_env import players, scores
from atari_env.models import AtariAction
from atari_env.server.atari_environment import AtariEnvironment, environment_class
from atari_env.server.grid import grid_of
from atari_env.server.ram import HINTS, READERS, Sight
from atari_env.server.settings import AtariSettings

from openenv_trl.errors import ActionValidationError, SessionStateError

COLOURS: dict[str, dict[str, tuple[int, int, int]]] = {
    "boxing": {"you": (214, 214, 214), "opponent": (0, 0, 0)},
    "breakout": {"your paddle": (200, 72, 72), "ball": (200, 72, 72)},
    "freeway": {
        "your chicken": (252, 252, 84),
        "car in lane 1": (167, 26, 26),
        "car in lane 4": (228, 111, 111),
        "car in lane 10": (210, 210, 64),
    },
    "ms_pacman": {
        "you": (210, 164, 74),
        "ghost Sue (orange)": (180, 122, 48),
        "ghost Inky (cyan)": (84, 184, 153),
        "ghost Pinky (pink)": (198, 89, 179),
        "ghost Blinky (red)": (200, 72, 72),
    },
    "pong": {"your paddle": (92, 186, 92), "opponent's paddle": (213, 130, 74), "ball": (236, 236, 236)},
    "seaquest": {"you": (187, 187, 53)},
    "skiing": {"you": (214, 92, 92)},
    "space_invaders": {"your cannon": (50, 132, 50), "bomb": (142, 142, 142), "your shot": (142, 142, 142)},
    "tennis": {"you": (240, 128, 128), "opponent": (117, 128, 240), "ball": (236, 236, 236)},
}
FLICKER = {"ms_pacman", "seaquest", "tennis", "space_invaders"}
"""Games that draw some things in every other frame only: the frames that are looked at are odd and even ones."""


def screens(game: str, steps: int) -> list[tuple[AtariEnvironment, list[Sight], np.ndarray]]:
    environment = environment_class(game)(AtariSettings(obs_type="ram", noop_max=30, frameskip=(3, 6)))
    generator = random.Random(2)
    seen = environment.reset(seed=2)
    found: list[tuple[AtariEnvironment, list[Sight], np.ndarray]] = []
    for _ in range(steps):
        seen = environment.step(AtariAction(action_id=generator.choice(seen.legal_actions)))
        if seen.done:
            seen = environment.reset(seed=3)
        pixels = environment.render()
        assert pixels is not None
        found.append((environment, READERS[game](seen.screen.tolist()).sights, pixels))
    return found


@pytest.mark.parametrize("game", sorted(READERS))
def test_what_is_named_is_where_its_colour_is(game: str) -> None:
    right: defaultdict[str, list[bool]] = defaultdict(list)
    for _, sights, pixels in screens(game, 300):
        for sight in sights:
            colour = COLOURS[game].get(sight.name)
            if colour is None:
                continue
            left, top = max(sight.x - 1, 0), max(sight.y - 1, 0)
            box = pixels[top : sight.y + sight.height + 1, left : sight.x + sight.width + 1]
            if box.size:
                right[sight.name].append(bool(np.all(box == np.array(colour, dtype=np.uint8), axis=2).any()))
    assert set(right) == set(COLOURS[game])
    least = 0.4 if game in FLICKER else 0.93
    shares = {name: statistics.fmean(hits) for name, hits in right.items()}
    assert min(shares.values()) > least, shares


def test_breakouts_rows_have_the_bricks_that_the_words_count() -> None:
    environment = environment_class("breakout")(AtariSettings(obs_type="text"))
    seen = environment.reset(seed=0)
    counted: set[tuple[int, ...]] = set()
    while not seen.done and seen.frame_number < 6000:
        seen = environment.hold(players.breakout(seen.message))
        told = re.search(r"bricks of 18 in each row from the top: (.*?)[.;]", seen.message)
        assert told is not None
        counts = tuple(int(each.split()[1]) for each in told[1].split(", "))
        pixels = environment.render()
        assert pixels is not None
        # Rows are 6 pixels high from y 57, bricks 8 wide from x 8; one pixel of each, unless the ball is there.
        there = [[bool(pixels[59 + 6 * row, 12 + 8 * brick].any()) for brick in range(18)] for row in range(6)]
        if "ball: x" not in seen.message:
            assert counts == tuple(map(sum, there))
            counted.add(counts)
    assert len(counted) > 2
    assert min(counted)[5] < 18


def test_moves_are_told_from_step_to_step() -> None:
    environment = environment_class("freeway")(AtariSettings(obs_type="text"))
    first = environment.reset(seed=0).message
    assert "moved" not in first
    places = [players.one(players.read(first), "car in lane 5")]
    for _ in range(5):
        places.append(players.one(players.read(environment.hold("UP").message), "car in lane 5"))
    for before, after in itertools.pairwise(places):
        assert before is not None
        assert after is not None
        assert (after.x - before.x, after.y - before.y) == (after.dx, after.dy)
    assert places[-1] is not None
    assert places[-1].dx < 0


def test_pongs_hint_is_true() -> None:
    assert "RIGHT moves it up, LEFT moves it down" in HINTS["pong"]
    environment = environment_class("pong")(AtariSettings(obs_type="text"))
    moved: dict[str, int] = {}
    for action in ("RIGHT", "LEFT"):
        places = [players.one(players.read(environment.reset(seed=0, noop_max=20).message), "your paddle")]
        places.append(players.one(players.read(environment.hold(action, 6).message), "your paddle"))
        assert places[0] is not None
        assert places[1] is not None
        moved[action] = places[1].y - places[0].y
    assert moved["RIGHT"] < 0 < moved["LEFT"]


def test_a_game_without_names_is_drawn_as_a_grid() -> None:
    environment = environment_class("amidar")(AtariSettings(obs_type="text", text_columns=24, text_rows=10))
    lines = environment.reset(seed=1).message.splitlines()
    grid, legend = lines[-11:-1], lines[-1]
    assert {len(line) for line in grid} == {24}
    signs = {part.split(" ", 1)[0] for part in legend.split(", ")}
    assert set("".join(grid)) == signs
    assert "." in signs


def test_a_single_pixel_is_seen_in_the_grid() -> None:
    palette = np.zeros((210, 160), dtype=np.uint8)
    palette[100:, :] = 4
    palette[53, 81] = 8
    rgb = np.zeros((210, 160, 3), dtype=np.uint8)
    rgb[palette == 4] = (150, 20, 20)
    rgb[palette == 8] = (240, 240, 240)
    drawn = grid_of(palette, rgb, 20, 21)
    assert drawn[5] == "k" * 10 + "w" + "k" * 9
    assert drawn[15] == "." * 20
    assert drawn[-1] == ". dark red, k black, w white"


def test_the_grid_can_be_had_always_or_never() -> None:
    environment = environment_class("pong")(AtariSettings(obs_type="text"))
    plain, drawn = environment.reset(seed=1).message, environment.reset(seed=1, text_grid="always").message
    assert len(drawn.splitlines()) == len(plain.splitlines()) + 18
    assert environment_class("amidar")().reset(text_grid="never").message.count("\n") == 1


@pytest.mark.parametrize(("game", "frames", "margin"), [("pong", 2000, 3), ("breakout", 1600, 3), ("freeway", 1500, 3)])
def test_a_player_of_words_beats_the_random_one(game: str, frames: int, margin: float) -> None:
    words = [scores.play(game, players.SCRIPTED[game], seed, frames) for seed in range(2)]
    chance = [scores.play(game, None, seed, frames) for seed in range(2)]
    assert min(words) > max(chance) + margin


def test_a_call_of_the_tool_is_as_many_steps() -> None:
    by_tool, by_number = (environment_class("breakout")(AtariSettings(repeat_action_probability=0.3)) for _ in "ab")
    for environment in (by_tool, by_number):
        environment.reset(seed=5)
    for name, repeat in (("FIRE", 1), ("RIGHT", 7), ("left", 12), ("NOOP", 30)):
        held = by_tool.hold(name, repeat)
        assert held.screen == []
        number = held.metadata["action_meanings"].index(name.upper())
        rewards = [by_number.step(AtariAction(action_id=number)) for _ in range(repeat)]
        assert held.reward == sum(each.reward or 0.0 for each in rewards)
        assert held.frame_number == rewards[-1].frame_number
        assert np.array_equal(by_tool.render(), by_number.render())
    assert by_tool.state.step_count == by_number.state.step_count == 50


def test_the_tool_stops_where_a_life_is_lost_or_the_game_ends() -> None:
    environment = environment_class("breakout")()
    environment.reset(seed=1)
    lost: list[int] = []
    seen = environment.hold("FIRE")
    while not seen.done:
        seen = environment.hold("FIRE", repeat=60)
        if "life_lost" in seen.metadata:
            lost.append(seen.lives)
    assert lost == [4, 3, 2, 1, 0]
    assert "the game is over" in seen.message
    with pytest.raises(SessionStateError, match="reset"):
        environment.hold("NOOP")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("JUMP", 1), r"'JUMP'.*NOOP, FIRE, RIGHT, LEFT"),
        (("FIRE", 0), "from 1 to 60"),
        (("FIRE", 61), "from 1 to 60"),
    ],
)
def test_a_wrong_call_is_refused_and_the_game_stands(arguments: tuple[str, int], text: str) -> None:
    environment = environment_class("breakout")()
    environment.reset(seed=1)
    environment.hold("FIRE", 3)
    before, screen = environment.state, environment.render()
    with pytest.raises(ActionValidationError, match=text):
        environment.hold(*arguments)
    with pytest.raises(ActionValidationError, match=r"number 4.*0 NOOP, 1 FIRE"):
        environment.step(AtariAction(action_id=4))
    with pytest.raises(ActionValidationError, match="number -1"):
        environment.step(AtariAction(action_id=-1))
    assert environment.state == before
    assert np.array_equal(environment.render(), screen)
