"""A process provider starts servers on their own ports, tells why one did not start, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import urllib.request
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError
from openenv_trl.providers import ProcessProvider
from tests.providers.patience import told_in_time

pytestmark = pytest.mark.anyio


def _get(url: str) -> int:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return reply.status


@pytest.mark.parametrize("fd", [True, False], ids=["by-descriptor", "by-port"])
async def test_replicas_answer_on_ports_of_their_own_and_are_gone_after_stop(plain_server, wait_gone, answers, fd):
    provider = ProcessProvider(plain_server(fd=fd), replicas=3)
    async with provider:
        urls = provider.base_urls
        assert len(set(urls)) == 3
        assert provider.running == provider.replicas
        for url in urls:
            assert await anyio.to_thread.run_sync(_get, f"{url}/health") == 200
        pids = [*provider.server_pids, *provider.supervisor_pids]
    await wait_gone(*pids)
    assert provider.replicas == []
    assert not any(answers(url) for url in urls)


async def test_port_is_also_told_by_environment_variable(wait_gone):
    script = str(Path(__file__).with_name("plain_server.py"))
    async with ProcessProvider([sys.executable, script]) as provider:
        assert await anyio.to_thread.run_sync(_get, f"{provider.base_urls[0]}/health") == 200


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_uvicorn_finds_its_reserved_port(tmp_path, loop):
    pytest.importorskip(loop)
    (tmp_path / "plain_app.py").write_text(
        "async def app(scope, receive, send):\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': b'ok'})\n"
    )
    options = ["--lifespan", "off", "--loop", loop, "--host", "{host}", "--port", "{port}"]
    command = [sys.executable, "-m", "uvicorn", "plain_app:app", *options]
    async with ProcessProvider(command, cwd=tmp_path) as provider:
        assert await anyio.to_thread.run_sync(_get, f"{provider.base_urls[0]}/health") == 200


def test_sync_form_works_without_an_event_loop(plain_server, answers):
    with ProcessProvider(plain_server(fd=True), replicas=2) as servers:
        urls = servers.base_urls
        assert all(answers(url) for url in urls)
    assert not any(answers(url) for url in urls)


async def test_sync_form_works_inside_a_running_event_loop(plain_server, answers):
    with ProcessProvider(plain_server(fd=True)) as servers:
        url = servers.base_urls[0]
        assert answers(url)
    assert not answers(url)


async def test_stop_ends_a_server_that_ignores_sigterm_and_what_it_started(plain_server, wait_gone):
    lines: list[str] = []
    provider = ProcessProvider(
        plain_server("--ignore-term", "--grandchild", "--daemon"),
        stop_grace_s=0.2,
        on_log=lambda _, line: lines.append(line),
    )
    async with provider:
        pass
    pids = [int(line.split()[1]) for line in lines if line.startswith("pid ")]
    assert len(pids) == 3
    await wait_gone(*pids)


async def test_a_crash_at_start_is_told_with_the_end_of_the_log(plain_server):
    with pytest.raises(ServerStartError, match="exit code 1") as caught:
        await ProcessProvider(plain_server("--crash")).start()
    assert "about to divide" in caught.value.log_tail
    assert "ZeroDivisionError" in str(caught.value)


async def test_a_program_that_does_not_exist_is_named():
    with pytest.raises(ServerStartError, match="cannot run no-such-program"):
        await ProcessProvider(["no-such-program", "--port", "{port}"]).start()


async def test_a_server_that_is_never_ready_is_ended_at_the_deadline(plain_server, wait_gone):
    lines: list[str] = []

    async def start(seconds: float) -> str:
        lines.clear()
        provider = ProcessProvider(
            plain_server("--never-ready", "--say=warming up"),
            replicas=2,
            ready_timeout_s=seconds,
            on_log=lambda _, line: lines.append(line),
        )
        with pytest.raises(ServerStartError, match=f"not ready within {seconds:g} s.*ready_timeout_s") as caught:
            await provider.start()
        return f"{caught.value} {caught.value.log_tail}"

    told = await told_in_time(start, "503", "warming up")
    assert "503" in told
    assert "warming up" in told
    await wait_gone(*(int(line.split()[1]) for line in lines if line.startswith("pid ")))


async def test_lines_of_a_server_that_hangs_are_not_lost_in_its_buffer():
    command = [sys.executable, "-c", "import signal; print('loading weights'); signal.pause()"]

    async def start(seconds: float) -> str:
        with pytest.raises(ServerStartError, match="the connection was refused: nothing listens there") as caught:
            await ProcessProvider(command, ready_timeout_s=seconds).start()
        return caught.value.log_tail

    assert await told_in_time(start, "loading weights") == "loading weights"


async def test_one_bad_replica_leaves_no_good_one_running(plain_server, wait_gone, tmp_path):
    lines: list[str] = []
    first = tmp_path / "first"
    command = ["/bin/sh", "-c", f'mkdir {first} && exec "$@"; exit 7', "sh", *plain_server()]
    provider = ProcessProvider(command, replicas=2, on_log=lambda _, line: lines.append(line))
    with pytest.raises(ServerStartError, match="exit code 7"):
        await provider.start()
    await wait_gone(*(int(line.split()[1]) for line in lines if line.startswith("pid ")))


async def test_cancelled_start_leaves_nothing(plain_server, wait_gone):
    pids: list[int] = []
    provider: ProcessProvider
    with anyio.CancelScope() as scope:

        def note(_: str, line: str) -> None:
            if line.startswith("pid "):
                pids.append(int(line.split()[1]))
                heard.set()

        heard = threading.Event()
        provider = ProcessProvider(plain_server("--never-ready"), on_log=note)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provider.start)
            await anyio.to_thread.run_sync(heard.wait)
            scope.cancel()
    await wait_gone(*pids)
    assert provider.replicas == []


async def test_log_goes_to_file_and_callback_with_the_replica_named(plain_server, tmp_path):
    heard: list[tuple[str, str]] = []
    path = tmp_path / "logs" / "servers.log"
    provider = ProcessProvider(
        plain_server("--say=hello"),
        replicas=2,
        name="plain",
        log_path=path,
        on_log=lambda *line: heard.append(line),
    )
    async with provider:
        pass
    assert ("plain-0", "hello") in heard
    assert "[plain-1] hello\n" in path.read_text()


@pytest.mark.parametrize("failure", [KeyError, SystemExit, KeyboardInterrupt])
async def test_callbacks_that_raise_neither_stop_the_server_nor_hide_its_death(plain_server, failure):
    def fail(*_: object) -> None:
        raise failure("mine")

    async with ProcessProvider(plain_server(), on_log=fail, on_exit=fail) as provider:
        assert await anyio.to_thread.run_sync(_get, f"{provider.base_urls[0]}/health") == 200
        await _death_is_noticed(provider)


async def _death_is_noticed(provider: ProcessProvider) -> None:
    pid = provider.server_pids[0]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with anyio.fail_after(60):
        await provider.wait_exited()
    assert not await provider.alive()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
async def test_a_log_that_cannot_be_written_is_reported_once_and_the_servers_go_on(plain_server, caplog):
    server = ["/bin/sh", "-c", 'i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done; exec "$@"', "sh"]
    async with ProcessProvider([*server, *plain_server()], log_path="/dev/full") as provider:
        assert await anyio.to_thread.run_sync(_get, f"{provider.base_urls[0]}/health") == 200
        await _death_is_noticed(provider)
    assert caplog.text.count("cannot be written") == 1
    assert "/dev/full" in caplog.text


async def test_a_log_that_cannot_be_opened_is_told_in_words_and_nothing_runs(plain_server, tmp_path):
    (tmp_path / "file").touch()
    provider = ProcessProvider(plain_server(), log_path=tmp_path / "file" / "servers.log")
    for begin in (provider.start, provider.add_replica):
        with pytest.raises(ConfigurationError, match=r"log_path='.*servers\.log' cannot be opened"):
            await begin()
        assert provider.replicas == []
    (tmp_path / "file").unlink()
    async with provider:
        assert len(provider.running) == 1


async def test_environment_variables_reach_the_server(plain_server, monkeypatch):
    monkeypatch.setenv("FROM_PARENT", "one")
    lines: list[str] = []
    command = ["/bin/sh", "-c", 'echo "$FROM_PARENT $GIVEN $PYTHONPATH"; exec "$@"', "sh", *plain_server()]
    env_vars = {"GIVEN": "two", "PYTHONPATH": "/somewhere"}
    async with ProcessProvider(command, env_vars=env_vars, on_log=lambda _, line: lines.append(line)):
        pass
    assert "one two /somewhere" in lines


async def test_a_replica_that_dies_later_is_noticed(plain_server):
    heard = []
    async with ProcessProvider(plain_server(), replicas=2, on_exit=heard.append) as provider:
        os.kill(provider.server_pids[1], signal.SIGKILL)
        with anyio.fail_after(60):
            report = await provider.wait_exited()
        assert report.replica == provider.replicas[1]
        assert report.exit_code == -signal.SIGKILL
        assert not report.restarting
        assert provider.running == provider.replicas[:1]
    assert heard == [report]


async def test_a_replica_that_dies_is_started_again_at_its_address_up_to_the_limit(plain_server, answers):
    ready = threading.Semaphore(0)

    def note(_: str, line: str) -> None:
        if line.startswith("pid "):
            ready.release()

    async with ProcessProvider(plain_server(fd=True), max_restarts=1, on_log=note) as provider:
        url, first_pid = provider.base_urls[0], provider.server_pids[0]
        ready.acquire()
        os.kill(first_pid, signal.SIGKILL)
        with anyio.fail_after(60):
            assert (await provider.wait_exited()).restarting
            await anyio.to_thread.run_sync(ready.acquire)
        assert await anyio.to_thread.run_sync(_get, f"{url}/health") == 200
        assert provider.server_pids[0] != first_pid
        os.kill(provider.server_pids[0], signal.SIGKILL)
        with anyio.fail_after(60):
            assert not (await provider.wait_exited()).restarting
        assert not answers(url)


async def test_wait_exited_ends_when_the_provider_is_stopped(plain_server):
    provider = ProcessProvider(plain_server())
    await provider.start()
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            with pytest.raises(ProviderError, match="does not run"):
                await provider.wait_exited()

        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        await provider.stop()


async def test_a_killed_supervisor_takes_its_server_along_and_is_noticed(plain_server, wait_gone, answers):
    lines: list[str] = []
    provider = ProcessProvider(plain_server("--grandchild"), on_log=lambda _, line: lines.append(line))
    async with provider:
        url = provider.base_urls[0]
        pids = [int(line.split()[1]) for line in lines if line.startswith("pid ")]
        assert len(pids) == 2
        os.kill(provider.supervisor_pids[0], signal.SIGKILL)
        with anyio.fail_after(60):
            report = await provider.wait_exited()
        assert report.exit_code == -signal.SIGKILL
        await wait_gone(*pids)
        assert not answers(url)


async def test_a_server_that_binds_without_reuseaddr_is_told_what_to_set(plain_server):
    with pytest.raises(ServerStartError, match="hold_port=False"):
        await ProcessProvider(plain_server("--no-reuse")).start()
    async with ProcessProvider(plain_server("--no-reuse"), hold_port=False) as provider:
        assert await anyio.to_thread.run_sync(_get, f"{provider.base_urls[0]}/health") == 200


async def test_a_process_that_cannot_be_spawned_leaves_no_replica_and_no_descriptor(plain_server, tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    async with ProcessProvider(plain_server(), cwd=folder) as provider:
        first = provider.replicas
        folder.rmdir()
        before = len(os.listdir("/dev/fd"))
        with pytest.raises(ProviderError, match=r"cwd='.*there': it is no folder any more"):
            await provider.add_replica()
        assert provider.replicas == first
        assert await provider.alive()
        assert len(os.listdir("/dev/fd")) == before
        folder.mkdir()
        assert await provider.alive(await provider.add_replica())


async def test_a_command_that_no_process_can_be_given_is_told(plain_server):
    provider = ProcessProvider([*plain_server(), "a\0b"])
    with pytest.raises(ProviderError, match="command and environment variables"):
        await provider.start()
    with pytest.raises(ProviderError, match="command and environment variables"):
        await provider.add_replica()
    assert provider.replicas == []


async def test_starting_twice_is_refused_and_starting_again_after_stop_is_not(plain_server):
    provider = ProcessProvider(plain_server())
    await provider.stop()
    await provider.start()
    with pytest.raises(ProviderError, match="runs already"):
        await provider.start()
    await provider.stop()
    await provider.start()
    await provider.stop()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"command": "no/such/folder"}, "neither a folder nor"),
        ({"command": []}, "command is empty"),
        ({"command": ["x"], "replicas": 0}, "at least one"),
        ({"command": ["x"], "cwd": "/no/such"}, "not a folder"),
    ],
)
def test_bad_settings_are_refused_at_once(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        ProcessProvider(**arguments)


def test_a_folder_that_is_no_environment_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"openenv\.yaml"):
        ProcessProvider(tmp_path)


def test_a_folder_or_an_import_name_is_served_by_our_own_server(tmp_path):
    (tmp_path / "my_env").mkdir()
    (tmp_path / "my_env" / "openenv.yaml").touch()
    from openenv_trl.providers.command import ServerCommand

    command = ServerCommand.of(tmp_path / "my_env", None)
    assert command.takes_fd
    assert command.name == "my_env"
    expected = [sys.executable, "-m", "openenv_trl.server", str(tmp_path / "my_env"), "--fd", "5"]
    assert command.arguments("127.0.0.1", 80, 5) == expected
    assert ServerCommand.of("package.server.app:app", None).name == "app"
