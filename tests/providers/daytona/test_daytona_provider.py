"""Servers in sandboxes: reached with their token, watched, deleted, and their failures in words."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import httpx
import pytest

from openenv_trl.client import GenericEnvClient
from openenv_trl.errors import ConfigurationError, OpenEnvError, ProviderError, ServerStartError, SessionLostError
from openenv_trl.providers.daytona import DaytonaProvider, DaytonaSpec
from openenv_trl.providers.daytona.launching import serving_command
from openenv_trl.providers.owner import this_owner
from openenv_trl.providers.specs import make_provider, read_spec
from openenv_trl.wire.lease import LEASE_PATH

pytestmark = pytest.mark.anyio


def only_sandbox(daytona: Any) -> Any:
    (sandbox,) = daytona.sandboxes.values()
    return sandbox


async def test_an_episode_is_played_in_a_sandbox_and_the_sandbox_is_deleted(daytona: Any) -> None:
    lines: list[str] = []
    provider = DaytonaProvider(
        image="blackjack-env:1", env_vars={"MAX_CONCURRENT_ENVS": 3}, on_log=lambda name, line: lines.append(line)
    )
    async with GenericEnvClient(provider=provider) as env:
        assert env.wire == "native"
        result = await env.reset(seed=1)
        while not result.done:
            result = await env.step({"move": "stand"})
        sandbox = only_sandbox(daytona)
        assert sandbox.asked["labels"].items() >= this_owner().labels("daytona-0").items()
        assert sandbox.asked["autoDeleteInterval"] == 0
        assert sandbox.asked["env"]["MAX_CONCURRENT_ENVS"] == "3"
        assert sandbox.asked["env"]["OPENENV_TRL_OWNER"] == this_owner().id
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{env.base_url}/health")).status_code == 401, "only with the token"
            capacity = await http.get(f"{env.base_url}/capacity", headers=provider.replicas[0].headers)
            assert capacity.json()["max_sessions"] == 3
        assert sandbox.token not in repr(provider.replicas)
        assert "Serving on" in await provider.logs()
    assert daytona.sandboxes == {}
    assert "Successfully built" in lines, "the image's build"
    assert any("Serving on" in line for line in lines), "the server's own lines"


async def test_replicas_of_a_snapshot_are_added_and_removed(daytona: Any) -> None:
    provider = make_provider({"type": "daytona", "image": "snapshot:blackjack", "replicas": 2, "name": "jack"})
    async with provider:
        assert [replica.name for replica in provider.replicas] == ["jack-0", "jack-1"]
        assert all(sandbox.asked["snapshot"] == "blackjack" for sandbox in daytona.sandboxes.values())
        assert await provider.alive()
        third = await provider.add_replica()
        await provider.remove_replica(provider.replicas[0])
        assert len(daytona.sandboxes) == 2
        async with GenericEnvClient(third.base_url, headers=third.headers) as env:
            await env.reset()
    assert daytona.sandboxes == {}


async def test_what_is_asked_for_is_what_the_sandbox_is_given(daytona: Any, tmp_path: Path) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM blackjack-env:1\nRUN true\n")
    provider = DaytonaProvider(
        image=f"dockerfile:{dockerfile}",
        cpus=1.5,
        memory="1500m",
        disk="5g",
        public=True,
        target="eu",
        network="internal",
        user="me",
        auto_stop_interval=7,
        labels={"team": "games"},
    )
    async with provider:
        asked = only_sandbox(daytona).asked
        assert asked["buildInfo"]["dockerfileContent"] == dockerfile.read_text()
        wanted = {
            "cpu": 2,
            "memory": 2,
            "disk": 5,
            "public": True,
            "target": "eu",
            "networkBlockAll": True,
            "user": "me",
        }
        assert asked.items() >= {**wanted, "autoStopInterval": 7}.items()
        assert asked["labels"]["team"] == "games"
        assert "X-Daytona-Preview-Token" not in provider.replicas[0].headers


async def test_an_address_with_its_token_inside_needs_no_header(daytona: Any) -> None:
    async with DaytonaProvider(image="blackjack-env:1", signed_url_s=3600) as provider:
        assert provider.replicas[0].headers == {}
        async with GenericEnvClient(provider.base_urls[0]) as env:
            await env.reset()


async def test_the_public_packages_calls_work_in_a_thread_without_a_loop(daytona: Any) -> None:
    provider = DaytonaProvider(public=True)

    def play() -> None:
        url = provider.start_container("blackjack-env:1", env_vars={"A": "1"})
        provider.wait_for_ready(url, timeout_s=120)
        with GenericEnvClient(url) as env:
            env.reset()
        assert only_sandbox(daytona).asked["env"]["A"] == "1"
        provider.stop_container()

    await anyio.to_thread.run_sync(play)
    assert daytona.sandboxes == {}


async def test_a_server_that_ends_is_told_at_once_with_its_last_lines(daytona: Any) -> None:
    provider = DaytonaProvider(image="blackjack-env:1", check_every_s=3600.0)
    async with GenericEnvClient(provider=provider) as env:
        await env.reset()
        (command,) = only_sandbox(daytona).commands.values()
        os.killpg(command.process.pid, signal.SIGKILL)
        with (
            anyio.fail_after(60),
            pytest.raises(SessionLostError, match=r"daytona-0 .* has died: ended with exit code"),
        ):
            await env.reset()
        with pytest.raises(SessionLostError, match=r"(?s:.*)Its last lines:(?s:.*)Serving on"):
            await env.reset()
        assert not await provider.alive()


@pytest.mark.parametrize(
    ("state", "text"), [("stopped", "its sandbox is stopped"), ("error", "its sandbox is error, no disk")]
)
async def test_a_sandbox_that_ends_is_told_with_its_reason(daytona: Any, state: str, text: str) -> None:
    async with DaytonaProvider(image="blackjack-env:1", check_every_s=0.1) as provider:
        sandbox = only_sandbox(daytona)
        await anyio.to_thread.run_sync(daytona.end, sandbox, state, "no disk" if state == "error" else None)
        with anyio.fail_after(60):
            gone = await provider.wait_exited()
        assert text in gone.message
        assert "Serving on" in gone.log_tail


async def test_a_sandbox_that_somebody_deleted_is_told(daytona: Any) -> None:
    async with DaytonaProvider(image="blackjack-env:1", check_every_s=0.1) as provider:
        await anyio.to_thread.run_sync(daytona.end, only_sandbox(daytona), "destroyed")
        with anyio.fail_after(60):
            gone = await provider.wait_exited()
        # The service still has it for a moment, in that state.
        assert "its sandbox was deleted" in gone.message or "its sandbox is destroyed" in gone.message


async def test_a_living_owner_keeps_its_sandboxes_active(daytona: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openenv_trl.providers.daytona.provider._KEEP_ACTIVE_EVERY_S", 0.0)
    async with DaytonaProvider(image="blackjack-env:1", check_every_s=0.05):
        sandbox = only_sandbox(daytona)
        with anyio.fail_after(60):
            while sandbox.activity < 2:  # noqa: ASYNC110 - it is counted in another thread
                await anyio.sleep(0.02)


async def test_the_lease_of_a_server_is_renewed_through_its_proxy(daytona: Any) -> None:
    async with DaytonaProvider(image="blackjack-env:1", lease_s=1.0) as provider:

        def renewals() -> list[int]:
            return [status for method, path, status in daytona.answered if (method, path) == ("POST", LEASE_PATH)]

        with anyio.fail_after(60):
            while len(renewals()) < 6:  # noqa: ASYNC110 - counted in another thread
                await anyio.sleep(0.02)
        assert await provider.alive()
        assert all(status in (200, 204, 502) for status in renewals()), "502 only while it starts"
        assert renewals()[-1] != 502


async def test_no_key_or_a_wrong_one_is_told(daytona: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"Invalid credentials.*Set DAYTONA_API_KEY, or api_key="):
        await DaytonaProvider(image="blackjack-env:1", api_key="wrong").start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAYTONA_API_KEY")
    with pytest.raises(ConfigurationError, match="Set DAYTONA_API_KEY, or api_key="):
        await DaytonaProvider(image="blackjack-env:1").start()
    assert daytona.deleted == []


async def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "daytona", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'openenv-trl\[daytona\]'"):
        await DaytonaProvider(image="a").start()


@pytest.mark.parametrize(
    ("settings", "kind", "text"),
    [
        (
            {"image": "nowhere:1"},
            ConfigurationError,
            r"refused to start daytona-0 \(400\).*nowhere:1 not found",
        ),
        ({"image": "empty:1"}, ServerStartError, r"has no openenv\.yaml below /app.*Set command"),
        ({"image": "broken:1"}, ServerStartError, r"daytona-0 ended before it was ready: exit code \d(?s:.*)nothing"),
        (
            {"image": "empty:1", "command": ["sh", "-c", "echo hello; sleep 600"], "ready_timeout_s": 6.0},
            ServerStartError,
            r"daytona-0 was not ready within 6 s: GET .*/health: answered 502(?s:.*)hello",
        ),
        (
            {"image": "blackjack-env:1", "api_url": "http://127.0.0.1:1/api"},
            ProviderError,
            "does not answer at http://127",
        ),
    ],
)
async def test_a_start_that_fails_says_why_and_leaves_no_sandbox(
    daytona: Any, settings: dict[str, Any], kind: type[OpenEnvError], text: str
) -> None:
    provider = DaytonaProvider(**settings, check_every_s=0.2)
    with anyio.fail_after(120), pytest.raises(kind, match=text):
        await provider.start()
    assert provider.replicas == []
    assert daytona.sandboxes == {}


async def test_an_image_that_cannot_be_built_is_told_with_its_builds_lines(daytona: Any) -> None:
    daytona.broken_builds["blackjack-env:1"] = "pip: no matching distribution"
    with pytest.raises(ServerStartError, match=r"could not build blackjack-env:1(?s:.*)Step 1/1(?s:.*)no matching"):
        await DaytonaProvider(image="blackjack-env:1").start()
    assert daytona.sandboxes == {}


async def test_a_quota_is_told_and_the_replicas_that_had_started_are_deleted(daytona: Any) -> None:
    daytona.quota = 1
    with pytest.raises(ProviderError, match=r"Daytona has no room to start .*quota exceeded.*Stop other sandboxes"):
        await DaytonaProvider(image="blackjack-env:1", replicas=2).start()
    assert daytona.sandboxes == {}


async def test_a_start_that_is_cancelled_in_whatever_moment_leaves_no_sandbox(daytona: Any) -> None:
    provider = DaytonaProvider(image="snapshot:blackjack")
    async with anyio.create_task_group() as group:
        # In this moment the sandbox is there, and the provider does not know of it yet.
        daytona.after_create = lambda: anyio.from_thread.run_sync(group.cancel_scope.cancel, token=token)
        token = anyio.lowlevel.current_token()
        group.start_soon(provider.start)
    await provider.stop()
    assert daytona.sandboxes == {}
    assert len(daytona.deleted) == 1


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"image": "a", "pids": 5}, "pids: Daytona has no such limit"),
        ({"image": "snapshot:a", "cpus": 1}, "a snapshot has its own resources"),
        ({"image": "snapshot:"}, "names nothing after the colon"),
        ({"image": "dockerfile:/nowhere/Dockerfile"}, "there is no such file"),
        ({"image": "a", "public": True, "signed_url_s": 9}, "for sandboxes that are not public"),
        ({"image": "a", "autostop": 9}, "it has no field 'autostop'"),
    ],
)
def test_settings_that_cannot_work_say_what_to_change(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        read_spec({"type": "daytona", **fields})


def test_what_serves_is_found_by_what_the_sandbox_has() -> None:
    spec = DaytonaSpec(image="a", port=9000)
    found = "openenv-trl manifest: /app/echo/openenv.yaml\nname: echo\napp: my.app:application\n"
    assert serving_command(spec, found).endswith(
        '"$python" -m uvicorn my.app:application --host 0.0.0.0 --port 9000) 2>&1'
    )
    assert "cd /app/echo && " in serving_command(spec, found)
    own = serving_command(spec, f"openenv-trl is there\n{found}")
    assert '"$python" -m openenv_trl.server /app/echo --host 0.0.0.0 --port 9000' in own
    given = spec.model_copy(update={"command": ["serve", "a b"]})
    assert serving_command(given, "") == "(exec serve 'a b') 2>&1"


def test_a_key_is_not_shown() -> None:
    assert "dtn_secret" not in repr(DaytonaSpec.model_validate({"image": "a", "api_key": "dtn_secret"}))
