"""What the README shows is what happens: its game, its arguments, its variables and the games that it names."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from atari_env import players, scores
from atari_env.server.atari_environment import AtariEnvironment, environment_class
from atari_env.server.games import playable_games, title_of
from atari_env.server.ram import READERS
from atari_env.server.settings import ENVIRONMENT_VARIABLES, AtariSettings

from openenv_trl.errors import ActionValidationError

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
_CALL = re.compile(r'act\("(\w+)"(?:, repeat=(\d+))?\)')


def test_the_game_goes_as_shown() -> None:
    shown = README.split("```")[1].strip("\n").split("\n")
    environment = environment_class("pong")()
    played = [("", environment.reset(seed=0, obs_type="text").message)]
    for line in shown:
        call = _CALL.match(line)
        if call is None:
            continue
        try:
            message = environment.hold(call[1], int(call[2] or 1)).message
        except ActionValidationError as error:
            message = f"error: {error}"
        played.append((call[0], message))
    made = [
        f"{call if number == 0 else '':28}{line}"
        for call, message in played
        for number, line in enumerate(message.split("\n"))
    ]
    assert made == shown
    assert len(played) == 5


def test_the_program_runs_as_shown(pong_server: str) -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    program = code[1].replace("http://localhost:8000", pong_server)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "(210, 160, 3) 400\n"


def test_the_arguments_are_those_in_the_table() -> None:
    table = README.partition("## Arguments of reset")[2].partition("An argument of another name")[0]
    rows = re.findall(r"^\| (`[^|]+) \|([^|]*)\|", table, re.MULTILINE)
    told = [name for names, _ in rows for name in re.findall(r"`(\w+)`", names)]
    taken = [name for name in inspect.signature(AtariEnvironment.reset).parameters if name not in ("self", "kwargs")]
    assert sorted(told) == sorted(taken)
    assert set(taken) == {"seed", "episode_id", "task_seed", *AtariSettings.model_fields}
    defaults = AtariSettings()
    for names, default in rows:
        for name, value in zip(re.findall(r"`(\w+)`", names), default.strip(" `").split(", "), strict=False):
            if name in AtariSettings.model_fields and not value.startswith("the "):
                assert str(getattr(defaults, name)).lower() == value


def test_the_variables_are_those_in_the_table() -> None:
    named = set(re.findall(r"`(ATARI_[A-Z_]*[A-Z])[=`]", README)) - {"ATARI_GAME"}
    assert named <= set(ENVIRONMENT_VARIABLES)
    assert "ATARI_REPEAT_ACTION_PROB" in named


def test_a_score_of_the_table_is_what_its_player_scores() -> None:
    row = re.search(r"^\| `freeway` \| \S+ ± \S+ \| \S+ ± \S+ \| (\S+) ± \S+ \|$", README, re.MULTILINE)
    assert row is not None
    # One of the five episodes, which lie some 1.6 crossings from their mean.
    assert abs(scores.play("freeway", players.SCRIPTED["freeway"], 0, 12_000) - float(row[1])) < 6


def test_the_games_that_words_are_told_of_are_named() -> None:
    sentence = re.search(r"Words name what is where in (.*?), read\n", README)
    assert sentence is not None
    told = {re.sub(r"\W", "", name).lower() for name in re.split(r", | and ", sentence[1])}
    assert told == {re.sub(r"\W", "", title_of(game)).lower() for game in READERS}
    assert len(playable_games()) == 104


@pytest.mark.parametrize("game", sorted(READERS))
def test_a_known_games_first_message_says_how_it_is_played(game: str) -> None:
    environment = environment_class(game)()
    lines = environment.reset(seed=0, obs_type="text").message.split("\n")
    assert lines[1].startswith("Actions: NOOP")
    assert lines[3] == "The screen is 160 wide and 210 high; x grows to the right, y downwards."
    environment.close()
