"""A served game is the same game: through the typed client, by numbers and by the tool, on both wires."""

from __future__ import annotations

import io
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
import yaml
from atari_env import AtariAction, AtariEnv, AtariObservation
from atari_env.server.atari_environment import PongEnvironment, environment_class
from atari_env.server.settings import AtariSettings
from PIL import Image

from openenv_trl import check_environment
from openenv_trl.client import GenericEnvClient, MCPToolClient, fetch_metadata, fetch_schema
from openenv_trl.errors import ActionValidationError, ConfigurationError, ServerStartError
from openenv_trl.providers import ProcessProvider

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[1]
CHANCE: dict[str, Any] = {"repeat_action_probability": 0.25, "noop_max": 30}


async def test_the_typed_client_gets_what_the_environment_gives(pong_server: str) -> None:
    here = environment_class("pong")()
    for wire in ("native", "openenv"):
        async with AtariEnv(pong_server, wire=wire) as env:  # pyright: ignore[reportArgumentType]
            expected = here.reset(seed=3, **CHANCE)
            result = await env.reset(seed=3, episode_id="third", **CHANCE)
            assert result.observation == expected
            for action in (1, 2, 2, 3, 0):
                expected = here.step(AtariAction(action_id=action))
                result = await env.step(AtariAction(action_id=action))
                assert result.observation == expected
                assert np.array_equal(result.observation.pixels(), here.render())
                assert (result.reward, result.done) == (expected.reward, expected.done)
            assert (await env.step({"action_id": 2})).observation == here.step(AtariAction(action_id=2))
            state = await env.state()
            assert (state.episode_id, state.step_count, state.game_name, state.seed) == ("third", 6, "pong", 3)
            assert state.settings["noop_max"] == 30


async def test_every_form_of_the_screen_comes_over_both_wires(pong_server: str) -> None:
    here = environment_class("pong")()
    for wire in ("native", "openenv"):
        async with AtariEnv(pong_server, wire=wire) as env:  # pyright: ignore[reportArgumentType]
            for kind in ("grayscale", "ram", "png", "data_url", "text"):
                expected = here.reset(seed=3, obs_type=kind)
                seen = (await env.reset(seed=3, obs_type=kind)).observation
                assert np.array_equal(seen.pixels(), expected.pixels())
                assert (seen.png(), seen.message) == (expected.png(), expected.message)


async def test_a_screen_takes_its_own_size_on_the_native_wire(pong_server: str) -> None:
    sent = [0]
    upstream = pong_server.removeprefix("http://").split(":")

    async def carry(client: anyio.abc.SocketStream) -> None:
        async with await anyio.connect_tcp(upstream[0], int(upstream[1])) as server, client:

            async def pump(source: anyio.abc.SocketStream, sink: anyio.abc.SocketStream, counts: bool) -> None:
                try:
                    async for data in source:
                        sent[0] += len(data) * counts
                        await sink.send(data)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    pass
                group.cancel_scope.cancel()

            async with anyio.create_task_group() as group:
                group.start_soon(pump, client, server, False)
                group.start_soon(pump, server, client, True)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as relay:
        relay.start_soon(listener.serve, carry)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with GenericEnvClient(f"http://127.0.0.1:{port}", wire="native") as env:
            await env.reset(seed=1)
            before, steps = sent[0], 20
            for _ in range(steps):
                await env.step({"action_id": 2})
            raw = 210 * 160 * 3
            assert raw <= (sent[0] - before) / steps < 1.01 * raw
        relay.cancel_scope.cancel()


async def test_the_tool_is_listed_with_the_games_actions_and_called(pong_server: str) -> None:
    async with MCPToolClient(pong_server) as env:
        await env.reset(seed=1, obs_type="text")
        (act,) = await env.list_tools()
        assert act.input_schema["properties"] == {
            "action": {"type": "string", "enum": ["NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE"]},
            "repeat": {"type": "integer", "minimum": 1, "maximum": 60, "default": 1},
        }
        assert act.input_schema["required"] == ["action"]
        here = environment_class("pong")()
        here.reset(seed=1, obs_type="text")
        action = {"type": "call_tool", "tool_name": "act", "arguments": {"action": "RIGHT", "repeat": 5}}
        assert (await env.call_tool("act", action="RIGHT", repeat=5))["message"] == here.hold("RIGHT", 5).message
        async with GenericEnvClient(pong_server) as steps:
            await steps.reset(seed=1, obs_type="text")
            result = await steps.step(action)
            here.reset(seed=1, obs_type="text")
            assert result.observation["message"] == here.hold("RIGHT", 5).message
            assert (result.reward, result.done) == (0.0, False)


async def test_a_wrong_call_is_told_to_the_client_and_the_session_lives(pong_server: str) -> None:
    async with AtariEnv(pong_server) as env:
        await env.reset(seed=1)
        with pytest.raises(ActionValidationError, match=r"number 6.*0 NOOP"):
            await env.step(AtariAction(action_id=6))
        with pytest.raises(ConfigurationError, match=r"no mode 9\. It has: 0, 1"):
            await env.reset(mode=9)
        assert (await env.step(AtariAction(action_id=0))).observation.frame_number == 4


async def test_sessions_side_by_side_play_as_each_alone(pong_server: str) -> None:
    alone: dict[int, bytes] = {}
    here = environment_class("pong")()
    for seed in range(8):
        here.reset(seed=seed, **CHANCE)
        for number in range(12):
            seen = here.step(AtariAction(action_id=2 + number % 2))
        alone[seed] = seen.screen.tobytes()
    together: dict[int, bytes] = {}

    async def one(seed: int) -> None:
        async with AtariEnv(pong_server) as env:
            await env.reset(seed=seed, **CHANCE)
            for number in range(12):
                result = await env.step(AtariAction(action_id=2 + number % 2))
            together[seed] = result.observation.pixels().tobytes()

    async with anyio.create_task_group() as group:
        for seed in alone:
            group.start_soon(one, seed)
    assert together == alone


def test_environments_in_threads_play_as_each_alone() -> None:
    def last(seed: int) -> bytes:
        environment = environment_class("breakout")(AtariSettings(**CHANCE))
        environment.reset(seed=seed)
        for number in range(60):
            seen = environment.step(AtariAction(action_id=(1, 2, 3)[number % 3]))
        environment.close()
        return seen.screen.tobytes()

    alone = {seed: last(seed) for seed in range(4)}
    together: dict[int, bytes] = {}
    threads = [threading.Thread(target=lambda seed=seed: together.update({seed: last(seed)})) for seed in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_a_games_class_can_be_sent_to_another_process() -> None:
    known = environment_class("tic_tac_toe_3d")
    assert pickle.loads(pickle.dumps(known)) is known


async def test_schema_and_metadata_name_what_the_manifest_names(pong_server: str) -> None:
    manifest = yaml.safe_load((PACKAGE / "openenv.yaml").read_text())
    schema, metadata = await fetch_schema(pong_server), await fetch_metadata(pong_server)
    assert schema["action"]["title"] == manifest["action"]
    assert schema["observation"]["title"] == manifest["observation"]
    assert schema["observation"]["properties"]["screen"]["items"] == {"type": "integer"}
    assert (metadata["name"], metadata["version"], metadata["description"]) == (
        manifest["name"],
        manifest["version"],
        manifest["description"],
    )


def test_a_server_of_a_game_that_there_is_not_ends_with_near_ones() -> None:
    with (
        pytest.raises(ServerStartError, match="Did you mean breakout"),
        ProcessProvider(str(PACKAGE), env_vars={"ATARI_GAME": "brakeout"}),
    ):
        pass


async def test_the_variables_choose_game_and_settings() -> None:
    variables = {"ATARI_GAME": "ALE/Freeway-v5", "ATARI_OBS_TYPE": "text", "ATARI_FRAMESKIP": "2"}
    with ProcessProvider(str(PACKAGE), env_vars=variables) as provider:
        async with AtariEnv(provider.replicas[0].base_url) as env:
            result = await env.reset(seed=0)
            assert result.observation.message.startswith("Freeway, score 0, frame 0.")
            assert (await env.step(AtariAction(action_id=1))).observation.frame_number == 2
            state = await env.state()
            assert (state.game_name, state.obs_type, state.frameskip) == ("freeway", "text", 2)


def test_the_debug_page_shows_the_true_screen_whatever_is_observed() -> None:
    environment = environment_class("breakout")(AtariSettings(obs_type="ram"))
    pages: set[str] = set()
    for kind in ("ram", "text", "rgb"):
        environment.reset(seed=0, obs_type=kind)
        for number in range(3):
            environment.step(AtariAction(action_id=number))
        page = environment.render_web({})
        assert page is not None
        assert "score 0, lives 5, frame 12" in page
        source = re.search(r'src="(data:image/png;base64,[^"]+)"', page)
        assert source is not None
        shown = AtariObservation(legal_actions=[], image=source[1]).png()
        assert shown is not None
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(shown))), environment.render())
        pages.add(page)
    assert len(pages) == 1
    buttons = environment.web_actions({})
    assert buttons == [(name, {"action_id": number}) for number, name in enumerate(["NOOP", "FIRE", "RIGHT", "LEFT"])]
    for _, action in buttons:
        assert environment.step(AtariAction.model_validate(action)).frame_number > 12


def test_the_environment_keeps_the_promises_of_its_contract() -> None:
    settings = {"repeat_action_probability": 0.25, "noop_max": 30, "max_num_frames_per_episode": 120}
    report = check_environment(
        PongEnvironment,
        sample_actions=[{"action_id": 2}, {"action_id": 3}],
        reset_arguments={**settings, "screen_size": (21, 16)},  # as JSON a whole screen takes the checker seconds
    )
    assert list(report) == []
    words = check_environment(
        PongEnvironment,
        sample_actions=[{"action_id": 1}, {"action_id": 2}],
        reset_arguments={**settings, "obs_type": "text"},
    )
    assert list(words) == []


async def test_the_app_is_also_served_as_server_app_from_its_folder(tmp_path: Path) -> None:
    # As OpenEnv's cloud providers do: a folder of another name, with the package installed beside it.
    (tmp_path / "env").symlink_to(PACKAGE)
    code = "import os, sys; os.chdir(sys.argv[1]); sys.path[:0] = sys.argv[1:]; import server.app; server.app.app.title"
    await anyio.run_process([sys.executable, "-c", code, str(tmp_path / "env"), str(PACKAGE.parent)], check=True)


def test_types_and_client_load_no_server_and_no_emulator() -> None:
    code = (
        "import sys, atari_env; atari_env.AtariEnv; atari_env.AtariAction;"
        "print(sorted({'atari_env.server', 'ale_py', 'PIL', 'fastapi', 'uvicorn'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
