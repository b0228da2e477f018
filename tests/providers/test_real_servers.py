"""The provider and the pool over this package's own server and client: real processes, real sockets."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import urllib.error
import urllib.request
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from openenv_trl.client import GenericEnvClient
from openenv_trl.errors import ConnectionFailedError, DeadlineExceededError, OpenEnvError
from openenv_trl.providers import ProcessProvider, SessionPool
from tests.providers.patience import told_in_time

pytestmark = pytest.mark.anyio

APP = """
    from openenv_trl.environment import Environment
    from openenv_trl.server import create_app
    from openenv_trl.types import Action, Observation, State


    class Say(Action):
        text: str


    class Heard(Observation):
        text: str = ""


    class Echo(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self):
            super().__init__()
            self.steps = State()

        def reset(self, seed=None, episode_id=None, **kwargs):
            self.steps = State(episode_id=episode_id)
            return Heard(text="ready")

        def step(self, action, timeout_s=None, **kwargs):
            self.steps.step_count += 1
            return Heard(text=action.text, reward=1.0)

        @property
        def state(self):
            return self.steps


    app = create_app(Echo, Say, Heard, env_name="echo", max_concurrent_envs=3)
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment's folder, of three sessions a server."""
    folder = tmp_path / "echo_for_pool"
    (folder / "server").mkdir(parents=True)
    (folder / "openenv.yaml").write_text(
        "spec_version: 1\nname: echo_for_pool\nruntime: fastapi\napp: server.app:app\n"
    )
    (folder / "__init__.py").touch()
    (folder / "server" / "__init__.py").touch()
    (folder / "server" / "app.py").write_text(textwrap.dedent(APP))
    return folder


async def _connect(base_url: str) -> GenericEnvClient:
    client = GenericEnvClient(base_url)
    await client.connect()
    return client


async def test_many_callers_play_over_few_real_sessions(environment: Path, wait_gone):
    full = anyio.Event()
    async with ProcessProvider(environment, replicas=2) as servers:
        pids = [*servers.server_pids, *servers.supervisor_pids]
        # The pool believes in ten sessions a server; each allows three.
        async with SessionPool(servers.base_urls, _connect, sessions_per_server=10) as pool:

            async def play(number: int) -> None:
                async with pool.session(deadline_s=120) as session:
                    await session.reset()
                    if pool.metrics().in_use == 6:
                        full.set()
                    await full.wait()
                    assert pool.metrics().in_use <= 6
                    result = await session.step({"text": f"call {number}"})
                    assert result.observation["text"] == f"call {number}"

            async with anyio.create_task_group() as tasks:
                for number in range(40):
                    tasks.start_soon(play, number)
            metrics = pool.metrics()
        assert (metrics.in_use, metrics.idle) == (0, metrics.opened)
        assert metrics.refused > 0
    await wait_gone(*pids)


async def test_a_second_user_of_a_full_server_waits_and_is_served(environment: Path):
    async with ProcessProvider(environment) as servers, anyio.create_task_group() as tasks:
        others = [await _connect(servers.base_urls[0]) for _ in range(3)]
        async with SessionPool(servers.base_urls, _connect, sessions_per_server=1) as pool:

            async def ask(seconds: float) -> str:
                with pytest.raises((DeadlineExceededError, ConnectionFailedError)) as caught:
                    await pool.acquire(timeout_s=seconds)
                return str(caught.value)

            assert "refuses more than 0" in await told_in_time(ask, "refuses more than 0")
            tasks.start_soon(others[0].close)
            async with pool.session(deadline_s=120) as session:
                assert (await session.reset()).observation["text"] == "ready"
        for other in others[1:]:
            await other.close()


async def test_a_frozen_server_is_said_to_open_no_session_and_not_to_be_full(environment: Path):
    async with ProcessProvider(environment, stop_grace_s=0.1) as servers:
        os.kill(servers.server_pids[0], signal.SIGSTOP)  # the system still accepts connections for it
        async with SessionPool(servers.base_urls, _connect, sessions_per_server=64) as pool:
            with pytest.raises(ConnectionFailedError, match=r"did not open a session within .*does not answer"):
                await pool.acquire(timeout_s=0.3)


async def test_idle_sessions_of_a_server_that_was_started_again_are_not_lent(environment: Path):
    async with (
        ProcessProvider(environment, max_restarts=1) as servers,
        SessionPool(servers.base_urls, _connect, sessions_per_server=2) as pool,
    ):
        lease = await pool.acquire(timeout_s=120)
        await pool.release(lease)
        os.kill(servers.server_pids[0], signal.SIGKILL)
        with anyio.fail_after(60):
            while lease.session.is_open:
                await anyio.lowlevel.checkpoint()
        async with pool.session(deadline_s=120) as session:
            assert (await session.reset()).observation["text"] == "ready"


async def test_play_goes_on_after_a_server_was_killed_and_started_again(environment: Path):
    async with (
        ProcessProvider(environment, max_restarts=1) as servers,
        SessionPool(servers.base_urls, _connect, sessions_per_server=2) as pool,
    ):
        lease = await pool.acquire(timeout_s=120)
        await lease.session.reset()
        os.kill(servers.server_pids[0], signal.SIGKILL)
        with pytest.raises(OpenEnvError):
            await lease.session.step({"text": "lost"})
        await pool.release(lease, healthy=False)
        async with pool.session(deadline_s=120) as session:
            assert (await session.reset()).observation["text"] == "ready"


async def test_sessions_in_play_do_not_keep_a_killed_owners_server_alive(environment: Path, owner, wait_gone):
    started = owner([sys.executable, "-m", "openenv_trl.server", str(environment), "--fd", "{fd}"])
    started.read_until(lambda o: o.urls)
    client = await _connect(started.urls[0])
    await client.reset()
    started.kill()
    await wait_gone(*started.pids["child"], *started.pids["supervisor"])
    with pytest.raises(OpenEnvError):
        await client.step({"text": "lost"})
    await client.close()


async def test_stopping_a_provider_does_not_wait_for_the_episodes_of_its_servers(environment: Path):
    async with ProcessProvider(environment, stop_grace_s=3600) as provider:
        client = await _connect(provider.base_urls[0])
        await client.reset()
        with anyio.fail_after(120):
            await provider.stop()
        with pytest.raises(OpenEnvError):
            await client.step({"text": "any more?"})


async def test_episodes_get_their_time_where_the_provider_is_told_so(environment: Path):
    env_vars = {"OPENENV_TRL_DRAIN_TIMEOUT_S": "3600"}
    async with ProcessProvider(environment, env_vars=env_vars, stop_grace_s=3600) as provider:
        client = await _connect(provider.base_urls[0])
        await client.reset()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provider.stop)
            with anyio.fail_after(120):
                while await anyio.to_thread.run_sync(_status, f"{client.base_url}/ready") == 200:
                    await anyio.lowlevel.checkpoint()
                assert (await client.step({"text": "last words"})).observation["text"] == "last words"
                await client.close()


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code
