"""Every game that ALE has is played or refused with what to change, and each reset is that of a new console."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest
from ale_py import ALEInterface, roms
from atari_env.models import AtariAction
from atari_env.server.atari_environment import environment_class
from atari_env.server.console import SHELF, Console
from atari_env.server.games import playable_games, rom_of

from openenv_trl.errors import ConfigurationError

FOR_TWO = ["combat", "joust", "maze_craze", "warlords"]


def test_all_games_but_those_for_two_can_be_played() -> None:
    assert sorted([*playable_games(), *FOR_TWO]) == sorted(roms.get_all_rom_ids())
    for name in FOR_TWO:
        with pytest.raises(ConfigurationError, match="game for two"):
            rom_of(name)
    with pytest.raises(ConfigurationError, match=f"All {len(playable_games())} of them"):
        rom_of("no such game")


def played(console: Console, choices: int, frames: int) -> str:
    generator = random.Random(choices)
    digest = hashlib.sha256()
    for _ in range(frames):
        reward = console.frame(generator.choice(console.minimal_actions))
        digest.update(console.rgb().tobytes() + console.ram().tobytes() + bytes([reward % 256, console.lives()]))
        if console.is_over():
            break
    return digest.hexdigest()


@pytest.mark.parametrize("game", playable_games())
def test_every_game_begins_anew_steps_and_tells_its_screen(game: str) -> None:
    console = Console(*rom_of(game))
    console.switch_on()
    as_new = played(console, 0, 40)
    played(console, 1, 80)
    console.switch_on(console.modes[-1], console.difficulties[-1])
    played(console, 2, 40)
    console.switch_on()
    assert played(console, 0, 40) == as_new

    SHELF.give_back(console)
    environment = environment_class(game)()
    seen = environment.reset(seed=1, obs_type="text")
    assert seen.message.splitlines()[1] == f"Actions: {', '.join(seen.metadata['action_meanings'])}."
    messages = {seen.message}
    for action in seen.legal_actions[:4]:
        seen = environment.hold(seen.metadata["action_meanings"][action], repeat=2)
        messages.add(seen.message)
    assert len(messages) > 1
    assert environment.reset(seed=1).pixels().shape[1:] == (160, 3)


def test_a_console_shows_what_ale_shows() -> None:
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(str(rom_of("seaquest")[1]))
    ale.reset_game()
    environment = environment_class("seaquest")()
    seen = environment.reset(seed=3)
    actions = ale.getMinimalActionSet()
    assert seen.metadata["action_meanings"] == [each.name for each in actions]
    generator = random.Random(5)
    for _ in range(250):
        assert np.array_equal(seen.pixels(), ale.getScreenRGB())
        assert (seen.lives, seen.episode_frame_number) == (ale.lives(), ale.getEpisodeFrameNumber())
        action = generator.choice(seen.legal_actions)
        reward = sum(ale.act(actions[action]) for _ in range(4))
        seen = environment.step(AtariAction(action_id=action))
        assert seen.reward == reward
        if seen.done:
            break
    assert seen.frame_number > 500


@pytest.mark.parametrize(
    "name", ["space_invaders", "SpaceInvaders", "ALE/SpaceInvaders-v5", "spaceinvaders", "SpaceInvadersNoFrameskip-v4"]
)
def test_a_game_is_known_by_all_its_names(name: str) -> None:
    assert rom_of(name)[0] == "space_invaders"
    assert environment_class(name) is environment_class("space_invaders")
    assert rom_of("SpaceInvaders-ramDeterministic-v4")[0] == "space_invaders"
    assert rom_of("TicTacToe3D")[0] == "tic_tac_toe_3d"


@pytest.mark.parametrize(("name", "near"), [("space_invader", "space_invaders"), ("Pomg", "pong"), ("zzz", "There is")])
def test_an_unknown_game_is_refused_with_those_that_are_near(name: str, near: str) -> None:
    with pytest.raises(ConfigurationError, match=near):
        environment_class(name)
