"""Stored trajectories are shown and played again from the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from openenv_trl import ProcessProvider
from openenv_trl.client import GenericEnvClient
from openenv_trl.rollout import EndReason, Task, Trajectory, Turn, observation_text, write_parquet
from openenv_trl.rollout.actions import call_tool_action

ROOT = Path(__file__).parents[2]
BLACKJACK = ROOT / "environments" / "blackjack_env"


def openenv_trl(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "openenv_trl.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)


@pytest.fixture(scope="module")
def blackjack_url() -> Iterator[str]:
    with ProcessProvider(str(BLACKJACK)) as servers:
        yield servers.base_urls[0]


@pytest.fixture(scope="module")
def games(blackjack_url: str) -> list[Trajectory]:
    """Eight games of a player that stands, in two groups."""

    async def play() -> list[Trajectory]:
        async with GenericEnvClient(blackjack_url) as session:
            return [await stand(session, index) for index in range(8)]

    async def stand(session: GenericEnvClient, index: int) -> Trajectory:
        prompt = [{"role": "user", "content": "Play."}]
        begin = observation_text((await session.reset(seed=index)).observation)
        end = await session.step(call_tool_action("stand", {}))
        turn = Turn("I stand.", [call_tool_action("stand", {})], [observation_text(end.observation)], done=True)
        turn.rewards = [end.reward]
        messages = [{"role": "user", "content": f"Play.\n\n{begin}"}, {"role": "assistant", "content": "I stand."}]
        return Trajectory(
            Task(prompt, {"seed": index}, group=f"table {index // 4}", index=index % 4),
            *([1, 2], [3, 4], [1, 1], None, [turn], EndReason.DONE),
            first_observation=begin,
            messages=messages,
        )

    return anyio.run(play)


def test_games_that_are_the_same_again_are_said_to_be(
    games: list[Trajectory], blackjack_url: str, tmp_path: Path
) -> None:
    write_parquet(games, tmp_path)
    result = openenv_trl("replay", str(tmp_path), "--env-url", blackjack_url)
    assert (result.returncode, result.stdout) == (0, "8 trajectories, 8 actions: 8 equal\n")


def test_a_difference_is_told_and_is_the_exit_code(games: list[Trajectory], tmp_path: Path) -> None:
    other = Trajectory(**{**vars(games[5]), "first_observation": "Your hand: 1, 1."})
    write_parquet([*games[:5], other, *games[6:]], tmp_path)
    result = openenv_trl("replay", str(tmp_path), "--environment", str(BLACKJACK), "--limit", "6")
    assert result.returncode == 1
    first, second = result.stdout.splitlines()
    assert first == "6 trajectories, 5 actions: 5 equal, 1 different"
    assert second.startswith("  episode 5, reset(seed=5): reset: the observation was 'Your hand: 1, 1.' and is now ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--env-url URL"),
        (["--env-url", "http://127.0.0.1:9", "--environment", str(BLACKJACK)], "--env-url URL"),
    ],
)
def test_replay_asks_for_one_place_to_play(
    games: list[Trajectory], tmp_path: Path, arguments: list[str], words: str
) -> None:
    write_parquet(games, tmp_path)
    result = openenv_trl("replay", str(tmp_path), *arguments)
    assert result.returncode == 1
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_groups_their_episodes_and_one_conversation_are_shown(games: list[Trajectory], tmp_path: Path) -> None:
    write_parquet(games, tmp_path)
    groups = openenv_trl("trajectories", "show", str(tmp_path))
    assert groups.returncode == 0
    assert groups.stdout.startswith("8 trajectories: done 8\n")
    assert [line.split()[:4] for line in groups.stdout.splitlines()[3:]] == [
        ["0", "table", "0", "4"],
        ["1", "table", "1", "4"],
    ]
    episodes = openenv_trl("trajectories", "show", str(tmp_path), "--group", "1").stdout.splitlines()
    assert [line.split()[7] for line in episodes if line.split()[1:2] == ["done"]] == ["4", "5", "6", "7"], "the seeds"
    conversation = openenv_trl("trajectories", "show", str(tmp_path), "--group", "1", "--episode", "2").stdout
    assert f"· {games[6].first_observation}" in conversation
    assert "█ I stand." in conversation
    assert f"│ {games[6].turns[0].observations[0]}" in conversation


def test_of_a_mixed_run_each_groups_environment_is_shown_and_can_be_asked_for(
    games: list[Trajectory], tmp_path: Path
) -> None:
    mixed = [replace(game, environment="cards" if index < 4 else "balls") for index, game in enumerate(games)]
    write_parquet(mixed, tmp_path)
    lines = openenv_trl("trajectories", "show", str(tmp_path)).stdout.splitlines()
    assert lines[2].split()[:3] == ["#", "environment", "group"]
    assert [line.split()[:2] for line in lines[3:] if line[0].isdigit()] == [["0", "cards"], ["1", "balls"]]
    lines = openenv_trl("trajectories", "show", str(tmp_path), "--environment", "balls").stdout.splitlines()
    assert lines[0] == "4 trajectories: done 4"
    listed = [line.split()[:2] for line in lines[3:] if line[0].isdigit()]
    assert listed == [["1", "balls"]], "with its number in the whole"
    assert "group table 1 of balls: " in openenv_trl("trajectories", "show", str(tmp_path), "--group", "1").stdout
    assert "done  balls  reward" in openenv_trl("trajectories", "show", str(tmp_path), "--episode", "7").stdout
    wrong = openenv_trl("trajectories", "show", str(tmp_path), "--environment", "bals")
    assert wrong.returncode == 1
    words = "the environment 'bals' (is 'balls' meant?): there are those of balls, cards."
    assert words in " ".join(wrong.stderr.split())


def test_what_is_not_there_is_one_message(tmp_path: Path) -> None:
    result = openenv_trl("trajectories", "show", str(tmp_path / "none"))
    assert result.returncode == 1
    assert result.stderr.startswith("error: There are no trajectories at")


def test_a_mixed_run_is_played_where_each_environment_is(
    games: list[Trajectory], blackjack_url: str, tmp_path: Path
) -> None:
    mixed = [replace(game, environment=name) for game, name in zip(games[:2], ("cards", "more"), strict=True)]
    folder = str(write_parquet(mixed, tmp_path / "mixed").parent)
    done = openenv_trl("replay", folder, "--env-url", blackjack_url)
    assert done.returncode != 0
    assert "environments ['cards', 'more']: say where to find each" in " ".join(done.stderr.split())
    named = [f"{name}={blackjack_url}" for name in ("cards", "more")]
    done = openenv_trl("replay", folder, "--env-url", named[0], "--env-url", named[1])
    assert (done.returncode, "2 equal" in done.stdout) == (0, True), done.stderr


def test_a_server_that_is_not_there_is_said_once(games: list[Trajectory], tmp_path: Path) -> None:
    folder = str(write_parquet(games, tmp_path / "games").parent)
    done = openenv_trl("replay", folder, "--env-url", "http://127.0.0.1:9")
    assert done.returncode != 0
    assert done.stderr.count("http://127.0.0.1:9") == 1
