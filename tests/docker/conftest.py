"""The environments' images, each built once, and a container of each, as hardened as an operator would run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.client import GenericEnvClient

ROOT = Path(__file__).resolve().parents[2]
HARDENED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")

Play = Callable[[GenericEnvClient], Awaitable[None]]


async def play_a_hand(env: GenericEnvClient) -> None:
    """Blackjack, seed 1: a nineteen, and the player stands."""
    opening = await env.reset(seed=1)
    assert opening.observation["message"] == "Your hand: 9, 10. Sum 19, no usable ace. The dealer shows 2."
    result = await env.step({"move": "stand"})
    assert result.done
    assert result.reward in (-1.0, 0.0, 1.0)


async def echo(env: GenericEnvClient) -> None:
    """Three messages, each said back."""
    opening = await env.reset(episode_id="mine")
    assert opening.observation["metadata"]["status"] == "ready"
    for message in ("a", "ä", ""):
        arguments = {"message": message}
        result = await env.step({"type": "call_tool", "tool_name": "echo_with_length", "arguments": arguments})
        assert result.observation["result"]["data"] == {"message": message, "length": len(message)}
    assert (await env.state()) == {"episode_id": "mine", "step_count": 3}


async def catch_a_ball(env: GenericEnvClient) -> None:
    """OpenSpiel's catch, seed 0: one step to the left, which catches the ball."""
    result = await env.reset(seed=0)
    assert result.observation["message"] == "Ball column 1, row 0. Paddle column 2."
    action = 0
    while not result.done:
        result = await env.step({"action_id": action})
        action = 1
    assert (result.observation["message"], result.reward) == ("You caught the ball.", 1.0)


async def solve_a_task(env: GenericEnvClient) -> None:
    """The coding environment's first task, solved."""
    opening = await env.reset(task_id="leap_year")
    assert "is_leap" in opening.observation["stdout"]
    code = "def is_leap(y):\n    return y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)\n"
    result = await env.step({"type": "call_tool", "tool_name": "run_tests", "arguments": {"code": code}})
    assert (result.reward, result.done) == (1.0, True)


async def make_an_event(env: GenericEnvClient) -> None:
    """The calendar's easiest task, solved."""
    opening = await env.reset(task="create_event", level="easy", task_seed=1)
    assert 'an event called "Zephyr briefing"' in opening.observation["message"]
    start, end = {"dateTime": "2026-10-23T13:00:00+08:00"}, {"dateTime": "2026-10-23T13:30:00+08:00"}
    event = {"calendarId": "primary", "summary": "Zephyr briefing", "start": start, "end": end}
    made = await env.step({"action_type": "ToolCallAction", "tool_name": "events_insert", "arguments": event})
    assert made.observation["success"]
    result = await env.step({"type": "call_tool", "tool_name": "finish", "arguments": {"message": "Done."}})
    assert (result.reward, result.done) == (1.0, True)


async def hold_the_joystick(env: GenericEnvClient) -> None:
    """Pong, seed 7, with every chance that there is: the frames are those of this process."""
    from atari_env.models import AtariAction
    from atari_env.server.atari_environment import PongEnvironment

    chance: dict[str, Any] = {"seed": 7, "repeat_action_probability": 0.25, "noop_max": 30, "frameskip": [2, 6]}
    here = PongEnvironment()
    expected, result = here.reset(**chance), await env.reset(**chance)
    for number in range(200):
        assert bytes(result.observation["screen"]) == expected.screen.tobytes()
        assert result.observation["frame_number"] == expected.frame_number
        action = number % 6
        expected, result = here.step(AtariAction(action_id=action)), await env.step({"action_id": action})
    words = await env.step({"type": "call_tool", "tool_name": "act", "arguments": {"action": "FIRE", "repeat": 2}})
    assert words.observation["message"] == here.hold("FIRE", 2).message


EPISODES: dict[str, Play] = {
    "atari_env": hold_the_joystick,
    "blackjack_env": play_a_hand,
    "calendar_env": make_an_event,
    "coding_env": solve_a_task,
    "echo_env": echo,
    "openspiel_env": catch_a_ball,
}
"""The environments whose images are built, each with an episode to play."""


@dataclass(frozen=True)
class Image:
    """An image that was built of an environment."""

    environment: str
    tag: str
    play: Play


class Docker:
    """The docker command."""

    root = ROOT

    def __call__(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        run = subprocess.run(["docker", *arguments], capture_output=True, text=True, cwd=ROOT)
        if check and run.returncode:
            pytest.fail(f"docker {' '.join(arguments)} failed:\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}")
        return run

    def inspect(self, thing: str) -> dict[str, Any]:
        """What the engine knows of a container or an image."""
        return json.loads(self("inspect", thing).stdout)[0]

    def address(self, container: str) -> str:
        """Where the container's server answers."""
        return f"http://{self('port', container, '8000/tcp').stdout.splitlines()[0]}"

    @contextmanager
    def running(self, image: str, *options: str) -> Iterator[str]:
        """A container of the image that serves, until the end of the block."""
        name = self("run", "--detach", "--publish", "127.0.0.1:0:8000", *options, image).stdout.strip()
        try:
            self._wait_until_it_serves(name)
            yield name
        finally:
            self("rm", "--force", "--volumes", name, check=False)

    def _wait_until_it_serves(self, container: str) -> None:
        with subprocess.Popen(
            ["docker", "logs", "--follow", container], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as logs:
            assert logs.stdout is not None
            seen: list[str] = []
            for line in logs.stdout:
                seen.append(line)
                if "Serving on" in line:
                    logs.kill()
                    return
        pytest.fail(f"The container ended before it served:\n{''.join(seen)}")


@pytest.fixture(scope="session")
def docker() -> Docker:
    """The engine of this machine; without one the tests are left out, or fail with OPENENV_TRL_REQUIRE_DOCKER=1."""
    command = Docker()
    if shutil.which("docker") is None or command("info", check=False).returncode:
        text = "No Docker engine answers. Start one: on Debian `apt-get install docker.io`, then `dockerd &` as root."
        if os.environ.get("OPENENV_TRL_REQUIRE_DOCKER") == "1":
            pytest.fail(text)
        pytest.skip(text)
    return command


@pytest.fixture(scope="session", params=EPISODES)
def image(request: pytest.FixtureRequest, docker: Docker) -> Iterator[Image]:
    """Each environment's image in turn, built by ``make``."""
    environment = str(request.param)
    short, version = environment.removesuffix("_env"), f"test-{uuid.uuid4().hex[:12]}"
    make = ["make", "--file", "images.mk", f"image-{short}", f"IMAGE_TAG={version}"]
    built = subprocess.run(make, capture_output=True, text=True, cwd=ROOT)
    assert built.returncode == 0, f"{built.stdout[-3000:]}\n{built.stderr[-3000:]}"
    tag = f"{environment.replace('_', '-')}:{version}"
    yield Image(environment, tag, EPISODES[environment])
    docker("image", "rm", "--force", tag, check=False)


@pytest.fixture(scope="session")
def container(docker: Docker, image: Image) -> Iterator[str]:
    """A container of the image with a read-only root and no capability."""
    with docker.running(image.tag, *HARDENED) as name:
        yield name
