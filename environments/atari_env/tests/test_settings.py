"""Every option does what it says, for one episode or for all, and a wrong one is refused and changes nothing."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from atari_env.models import AtariAction, AtariObservation
from atari_env.server.atari_environment import AtariEnvironment, environment_class
from atari_env.server.console import SHELF
from atari_env.server.settings import ENVIRONMENT_VARIABLES, AtariSettings, settings_from_variables
from PIL import Image

from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError

pytestmark = pytest.mark.anyio


@pytest.fixture
def pong() -> Iterator[AtariEnvironment]:
    environment = environment_class("pong")()
    yield environment
    environment.close()


def stepped(environment: AtariEnvironment, steps: int = 30, **reset_arguments: Any) -> AtariObservation:
    seen = environment.reset(seed=1, **reset_arguments)
    for number in range(steps):
        seen = environment.step(AtariAction(action_id=(1, 2, 3, 2)[number % 4]))
    return seen


def test_the_same_screen_is_seen_in_every_form(pong: AtariEnvironment) -> None:
    rgb = stepped(pong).pixels()
    assert (rgb.dtype, rgb.shape) == (np.uint8, (210, 160, 3))
    assert np.array_equal(rgb, pong.render())
    grey = stepped(pong, obs_type="grayscale").pixels()
    assert grey.shape == (210, 160)
    luminance = rgb @ np.array([0.2989, 0.587, 0.114])
    assert np.abs(grey - luminance).max() < 2
    ram = stepped(pong, obs_type="ram")
    assert (ram.screen_shape, ram.pixels().shape) == ([128], (128,))
    png, url = stepped(pong, obs_type="png"), stepped(pong, obs_type="data_url")
    assert isinstance(png.image, bytes)
    assert isinstance(url.image, str)
    assert url.image == "data:image/png;base64," + base64.b64encode(png.image).decode()
    assert url.png() == png.png() == png.image
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png.image))), rgb)
    assert (png.screen, png.screen_shape, url.pixels().size) == ([], [0], 0)
    text = stepped(pong, obs_type="text")
    assert text.message.startswith("Pong, score")
    assert (text.screen, text.image) == ([], None)


def test_words_come_beside_pixels_where_that_is_set(pong: AtariEnvironment) -> None:
    assert stepped(pong).message == ""
    both = stepped(pong, with_text=True)
    assert both.message == stepped(pong, obs_type="text").message
    assert both.pixels().shape == (210, 160, 3)


def test_modes_and_difficulties_are_the_games_own_or_refused_with_those() -> None:
    environment = environment_class("breakout")()
    plain = stepped(environment, mode=0, difficulty=0).pixels()
    assert not np.array_equal(plain, stepped(environment, mode=28).pixels())
    assert (environment.state.mode, environment.state.difficulty) == (28, None)
    before, screen = environment.state, environment.render()
    with pytest.raises(ConfigurationError, match=r"'breakout' has no mode 5\. It has: 0, 4, 8, 12"):
        environment.reset(mode=5)
    with pytest.raises(ConfigurationError, match=r"'breakout' has no difficulty 3\. It has: 0, 1\."):
        environment.reset(difficulty=3, color_averaging=True)
    assert environment.state == before
    assert np.array_equal(environment.render(), screen)
    with pytest.raises(ConfigurationError, match="no mode 7"):
        environment_class("breakout")(AtariSettings(mode=7)).check()


def test_an_episode_is_cut_off_at_its_limit_of_frames_and_says_so(pong: AtariEnvironment) -> None:
    seen = pong.reset(seed=0, max_num_frames_per_episode=42, noop_max=0)
    while not seen.done:
        assert "truncated" not in seen.metadata
        seen = pong.step(AtariAction(action_id=0))
    assert (seen.episode_frame_number, seen.metadata["truncated"]) == (42, True)
    with pytest.raises(SessionStateError, match="reset"):
        pong.step(AtariAction(action_id=0))
    assert pong.reset(seed=0, obs_type="text", max_num_frames_per_episode=0).done is False
    assert AtariSettings().max_num_frames_per_episode == 108_000


def test_a_lost_life_ends_the_episode_where_that_is_set() -> None:
    environment = environment_class("breakout")()
    for ends in (True, False):
        seen = environment.reset(seed=1, terminal_on_life_loss=ends)
        while "life_lost" not in seen.metadata:
            seen = environment.step(AtariAction(action_id=1))
        assert (seen.lives, seen.done) == (4, ends)
        assert "truncated" not in seen.metadata


def test_clipped_rewards_are_signs_and_the_score_is_told() -> None:
    environment = environment_class("seaquest")()
    rewards: dict[bool, list[float | None]] = {}
    for clipped in (True, False):
        environment.reset(seed=0, reward_clipping=clipped)
        seen = [environment.step(AtariAction(action_id=(1, 13, 11, 12)[n % 4])) for n in range(300)]
        rewards[clipped] = [each.reward for each in seen]
        if clipped:
            scores = [each.metadata["score"] for each in seen]
    assert max(rewards[False]) > 1  # type: ignore[type-var]
    assert scores == rewards[False]
    assert rewards[True] == [float(np.sign(score)) for score in scores]


def test_all_actions_are_legal_where_that_is_set(pong: AtariEnvironment) -> None:
    assert len(pong.reset(seed=0).legal_actions) == 6
    seen = pong.reset(seed=0, full_action_space=True)
    assert (len(seen.legal_actions), seen.metadata["action_meanings"][17]) == (18, "DOWNLEFTFIRE")
    (act,) = pong.offered_tools()
    assert act.input_schema["properties"]["action"]["enum"] == seen.metadata["action_meanings"]
    assert pong.hold("DOWNLEFTFIRE").reward == 0.0
    assert len(pong.reset(seed=0).legal_actions) == 6


def test_two_frames_are_pooled_by_their_larger_pixels() -> None:
    # With a frameskip of 1 the frame before the last is the step before's.
    plain, pooled = environment_class("asteroids")(), environment_class("asteroids")()
    plain.reset(seed=0, frameskip=1)
    pooled.reset(seed=0, frameskip=1, max_pooling=True)
    frames: list[Any] = []
    differed = 0
    for number in range(40):
        action = AtariAction(action_id=number % 5)
        frames.append(plain.step(action).pixels())
        both = pooled.step(action).pixels()
        if len(frames) > 1:
            assert np.array_equal(both, np.maximum(frames[-1], frames[-2]))
            differed += not np.array_equal(both, frames[-1])
    assert differed > 5
    assert stepped(pooled, obs_type="grayscale", max_pooling=True).pixels().shape == (210, 160)


def test_averaged_colours_mix_two_frames_and_their_console_is_a_new_one() -> None:
    environment = environment_class("asteroids")()
    plain = stepped(environment).pixels()
    mixed = stepped(environment, color_averaging=True).pixels()
    assert not np.array_equal(plain, mixed)
    assert np.array_equal(stepped(environment, color_averaging=True).pixels(), mixed)
    assert np.array_equal(stepped(environment).pixels(), plain)


def test_screens_are_scaled_and_stacked(pong: AtariEnvironment) -> None:
    small = stepped(pong, obs_type="grayscale", screen_size=(84, 84)).pixels()
    assert small.shape == (84, 84)
    full = stepped(pong, obs_type="grayscale").pixels()
    assert abs(float(small.mean()) - float(full.mean())) < 1
    png = stepped(pong, obs_type="png", screen_size=(100, 120)).png()
    assert png is not None
    assert Image.open(io.BytesIO(png)).size == (120, 100)

    first = pong.reset(seed=1, obs_type="grayscale", screen_size=(84, 84), frame_stack=4).pixels()
    assert first.shape == (4, 84, 84)
    assert all(np.array_equal(first[0], each) for each in first)
    newest = [first[-1]]
    for number in range(5):
        stack = pong.step(AtariAction(action_id=2 + number // 4)).pixels()
        newest.append(stack[-1])
        assert np.array_equal(stack, np.stack(([newest[0]] * 3 + newest)[-4:]))
    # The steps of a call of the tool are stacked like others.
    pong.hold("RIGHT", 2)
    after = pong.step(AtariAction(action_id=0)).pixels()
    assert np.array_equal(after[0], newest[-1])
    assert not np.array_equal(newest[-3], newest[-1])


def test_one_call_computes_240_frames_at_most(pong: AtariEnvironment) -> None:
    for frameskip, most in ((1, 60), (4, 60), (5, 48), (60, 4), ((2, 7), 40)):
        seen = pong.reset(seed=1, frameskip=frameskip)
        assert pong.offered_tools()[0].input_schema["properties"]["repeat"]["maximum"] == most
        with pytest.raises(ActionValidationError, match=f"from 1 to {most}, not {most + 1}: .* 240 frames"):
            pong.hold("NOOP", most + 1)
        before, seen = seen.frame_number, pong.hold("NOOP", most)
        assert seen.frame_number - before <= 240
    assert pong.reset(seed=1, frameskip=1, max_repeat=240).frame_number == 0
    assert pong.hold("NOOP", 240).frame_number == 240


async def test_a_long_call_leaves_the_loop_to_others_and_plays_the_same(pong: AtariEnvironment) -> None:
    other = environment_class("pong")()
    pong.reset(seed=1)
    other.reset(seed=1)
    turns = 0
    ended = anyio.Event()

    async def take_turns() -> None:
        nonlocal turns
        while not ended.is_set():
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(take_turns)
        seen = await pong.act("FIRE", 60)
        ended.set()
    assert turns > 2
    assert seen == other.hold("FIRE", 60)
    assert np.array_equal(pong.render(), other.render())


def test_pixels_are_a_png_too_and_ram_and_words_are_none(pong: AtariEnvironment) -> None:
    for chosen in ({}, {"obs_type": "grayscale"}, {"frame_stack": 3}, {"obs_type": "grayscale", "frame_stack": 2}):
        seen = stepped(pong, **chosen)
        picture = np.asarray(Image.open(io.BytesIO(seen.png() or b"")))
        assert np.array_equal(picture, seen.pixels()[-1] if "frame_stack" in chosen else seen.pixels())
    for without in ({"obs_type": "ram"}, {"obs_type": "ram", "frame_stack": 4}, {"obs_type": "text"}):
        assert stepped(pong, **without).png() is None


def test_environment_variables_give_every_setting() -> None:
    variables = {
        "ATARI_OBS_TYPE": "text",
        "ATARI_FULL_ACTION_SPACE": "true",
        "ATARI_MODE": "4",
        "ATARI_DIFFICULTY": "1",
        "ATARI_REPEAT_ACTION_PROB": "0.25",
        "ATARI_FRAMESKIP": "2,5",
        "ATARI_SCREEN_SIZE": "84x84",
        "ATARI_NOOP_MAX": "30",
    }
    settings = settings_from_variables(variables)
    assert settings == AtariSettings(
        obs_type="text",
        full_action_space=True,
        mode=4,
        difficulty=1,
        repeat_action_probability=0.25,
        frameskip=(2, 5),
        screen_size=(84, 84),
        noop_max=30,
    )
    assert settings_from_variables({"ATARI_FRAMESKIP": "3", "ATARI_MODE": ""}).frameskip == 3
    assert set(ENVIRONMENT_VARIABLES.values()) == set(AtariSettings.model_fields)
    with pytest.raises(ConfigurationError, match="frameskip"):
        settings_from_variables({"ATARI_FRAMESKIP": "often"})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"sed": 1}, r"'sed'.*task_seed.*frameskip"),
        ({"seed": "1"}, "seed must be an integer"),
        ({"obs_type": "video"}, "obs_type"),
        ({"frameskip": 0}, r"used: frameskip: a number of frames from 1 to 60, or a range .* is needed, not 0\.$"),
        ({"frameskip": 61}, r"frameskip: a number of frames from 1 to 60, .* not 61\.$"),
        ({"frameskip": (2, 1_000_000)}, r"frameskip: .* from 1 to 60, .* not \(2, 1000000\)\.$"),
        ({"frameskip": (5, 2)}, "from a smaller number to a larger"),
        ({"max_repeat": 241}, "max_repeat: .* less than or equal to 240"),
        ({"noop_max": 301}, "noop_max: .* less than or equal to 300"),
        ({"frame_stack": 17}, "frame_stack: .* less than or equal to 16"),
        ({"screen_size": (513, 84)}, r"screen_size: .* from 1 to 512, .* not \(513, 84\)\.$"),
        ({"screen_size": (512, 512), "frame_stack": 3}, "3 screens of 512 x 512 in rgb are 2,359,296 bytes"),
        ({"color_averaging": True, "max_pooling": True}, "color_averaging and max_pooling .* choose one"),
        ({"repeat_action_probability": 1.5}, "repeat_action_probability"),
        ({"frame_stack": 0}, "frame_stack"),
        ({"screen_size": (0, 84)}, "screen_size"),
        ({"text_columns": 500}, "text_columns"),
    ],
)
def test_a_wrong_argument_of_reset_is_refused_and_the_game_goes_on(
    pong: AtariEnvironment, arguments: dict[str, Any], text: str
) -> None:
    stepped(pong, 5, episode_id="fourth")
    screen = pong.render()
    with pytest.raises(ConfigurationError, match=text):
        pong.reset(**arguments)
    assert pong.state.episode_id == "fourth"
    assert np.array_equal(pong.render(), screen)
    assert pong.step(AtariAction(action_id=1)).frame_number == 24


def test_a_step_before_the_first_reset_names_reset(pong: AtariEnvironment) -> None:
    with pytest.raises(SessionStateError, match="reset"):
        pong.step(AtariAction(action_id=0))
    assert pong.render() is None
    assert pong.render_web({}) is None
    assert pong.web_actions({}) == []


def test_a_closed_sessions_console_is_used_again() -> None:
    first = environment_class("carnival")()
    first.reset(seed=0)
    console = first._console
    assert console is not None
    first.close()
    first.close()
    second, third = environment_class("carnival")(), environment_class("carnival")()
    second.reset(seed=0)
    third.reset(seed=0)
    assert second._console is console
    assert third._console is not console
    assert SHELF.take("carnival") is not console
