"""A project is served in an environment of its own, fetched where it is elsewhere, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from openenv_trl.client import GenericEnvClient
from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError, SessionLostError
from openenv_trl.providers.base import ReplicaExit
from openenv_trl.providers.specs import make_provider, read_spec
from openenv_trl.providers.uv import UVProvider, UVSpec
from openenv_trl.providers.uv.checkout import Checkout, remove_abandoned
from openenv_trl.providers.uv.git_address import GitAddress
from tests.providers.engines import port_for_later

pytestmark = pytest.mark.anyio


def fetched() -> set[Path]:
    """The folders of fetched projects that are there now."""
    return set(Path(tempfile.gettempdir()).glob("openenv-trl-project-*"))


def child_of(pid: int | None) -> int:
    """The one process that another has started, from whichever thread."""
    children = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    return int(next(each for each in children if each)[0])


async def test_a_project_that_has_this_package_is_served_by_its_own_server(own_project: Path) -> None:
    lines: list[str] = []
    provider = UVProvider(own_project, replicas=2, on_log=lambda name, line: lines.append(f"{name} {line}"))
    async with provider:
        assert [replica.name for replica in provider.replicas] == ["blackjack_env-0", "blackjack_env-1"]
        assert await provider.alive()
        async with GenericEnvClient(provider.base_urls[1]) as env:
            assert env.wire == "native"
            assert (await env.reset(seed=1)).observation["player_cards"]
        added = await provider.add_replica()
        await provider.remove_replica(provider.replicas[0])
        assert added in provider.replicas
        assert "Serving on" in await provider.logs(added)
    assert provider.replicas == []
    assert not (own_project / ".venv").exists(), "isolated: nothing is written into the project"
    assert not (own_project / "uv.lock").exists()
    assert any("blackjack_env-0 " in line and "Serving on" in line for line in lines)


async def test_a_project_without_this_package_is_served_by_uvicorn(plain_project: Any) -> None:
    project = plain_project()
    provider = make_provider({"type": "uv", "project": project, "env_vars": {"GREETING": "good day"}})
    async with provider:
        async with GenericEnvClient(provider.base_urls[0]) as env:
            assert env.wire == "openenv"
            assert (await env.reset()).observation == {"text": "good day"}
        assert "Uvicorn running on" in await provider.logs()
    assert {each.name for each in project.iterdir()} == {"server", "pyproject.toml"}


async def test_a_repository_is_fetched_and_removed_with_the_provider(plain_project: Any, committed: Any) -> None:
    before = fetched()
    address, _ = committed(plain_project().parent)
    provider = UVProvider(f"{address}#subdirectory=plain_game")
    async with GenericEnvClient(provider=provider) as env:
        assert provider.replicas[0].name == "plain_game-0"
        assert len(fetched() - before) == 1
        assert (await env.reset()).observation == {"text": "hello"}
    assert fetched() == before


async def test_any_revision_is_fetched_without_its_history(plain_project: Any, committed: Any) -> None:
    folder = plain_project(greeting="first")
    address, first = committed(folder, tag="v1")
    app = folder / "server" / "app.py"
    app.write_text(app.read_text().replace("'first'", "'second'"))
    committed(folder, tag="v2")
    for revision, greeting in (("", "second"), ("@v1", "first"), ("@main", "second"), (f"@{first}", "first")):
        checkout = Checkout()
        try:
            parsed = GitAddress.of(f"{address}{revision}")
            assert parsed is not None
            project = await checkout.fetch(parsed, 60.0)
            assert repr(greeting) in (project / "server" / "app.py").read_text()
            assert (project / ".git" / "shallow").exists()
        finally:
            checkout.remove()


async def test_what_a_client_is_given_for_a_repository_of_the_hub_is_served_by_uv(
    plain_project: Any, committed: Any
) -> None:
    address, _ = committed(plain_project())
    client = GenericEnvClient.from_env(
        "owner/a_game", use_docker=False, project_path=address, env_vars={"GREETING": "hi"}, context_timeout_s=50.0
    )
    async with client as env:
        assert (await env.reset()).observation == {"text": "hi"}


async def test_a_server_that_ends_is_told_with_its_last_lines(own_project: Path) -> None:
    gone: list[ReplicaExit] = []
    provider = UVProvider(own_project, on_exit=gone.append)
    client = GenericEnvClient(provider=provider)
    async with client as env:
        await env.reset()
        assert provider._servers is not None
        os.kill(child_of(provider._servers.server_pids[0]), signal.SIGKILL)

        async def play_on() -> None:
            while True:
                await env.reset()

        with anyio.fail_after(60), pytest.raises(SessionLostError, match=r"blackjack_env-0 .* has died: ended with"):
            await play_on()
        with pytest.raises(SessionLostError, match=r"has died: ended with exit code.*Its last lines:(?s:.*)Serving on"):
            await env.reset()
    assert [each.replica.name for each in gone] == ["blackjack_env-0"]


async def test_a_killed_owner_leaves_no_server(plain_project: Any, wait_gone: Any) -> None:
    script = (
        "import sys, time\n"
        "from openenv_trl.providers.uv import UVProvider\n"
        "provider = UVProvider(sys.argv[1])\n"
        "provider.start_sync()\n"
        "print(provider._servers.server_pids[0], flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", script, str(plain_project())]
    async with await anyio.open_process(command, stdin=None, stderr=None) as owner:
        assert owner.stdout is not None
        uv = int(await owner.stdout.receive())
        server = child_of(uv)
        owner.kill()
    await wait_gone(uv, server, within_s=60)


async def test_the_port_and_the_packages_of_the_users_choice_are_used(plain_project: Any) -> None:
    port = port_for_later()
    project = plain_project(before="import six")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    spec = UVSpec(project=str(project), app="server.app:app", port=port, with_packages=["six"], python=python)
    async with UVProvider(spec) as provider:
        assert provider.base_urls == [f"http://127.0.0.1:{port}"]
        second = UVProvider(spec)
        with pytest.raises(ProviderError, match=f"port {port} of 127.0.0.1 cannot be had"):
            await second.start()


async def test_an_application_that_cannot_be_imported_is_told_with_its_error(plain_project: Any) -> None:
    project = plain_project(app="import a_module_that_is_not_there")
    with pytest.raises(
        ServerStartError, match=r"plain_game-0 ended with exit code 1.*\n(?s:.*)a_module_that_is_not_there"
    ):
        await UVProvider(project).start()
    with pytest.raises(ServerStartError, match=r"ended with exit code \d+(?s:.*)server.nothing"):
        await UVProvider(project, app="server.nothing:app").start()


async def test_an_environment_that_cannot_be_made_is_told_with_what_uv_says(plain_project: Any) -> None:
    project = plain_project("six==999.0")
    with pytest.raises(ServerStartError, match=r"The environment of project .* cannot be made.*\n(?s:.*)six==999.0"):
        await UVProvider(project).start()


async def test_a_folder_without_a_project_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"has no pyproject\.toml"):
        await UVProvider(tmp_path).start()
    with pytest.raises(ConfigurationError, match="there is no folder nowhere"):
        await UVProvider(tmp_path / "nowhere").start()


async def test_a_repository_that_cannot_be_fetched_is_told_with_what_git_says(
    plain_project: Any, committed: Any, tmp_path: Path
) -> None:
    before = fetched()
    address, _ = committed(plain_project())
    for wrong, text in (
        (f"git+file://{tmp_path}/nowhere", "does not appear to be a git repository"),
        (f"{address}@no-such-branch", "no-such-branch"),
    ):
        with pytest.raises(ServerStartError, match=rf"was not fetched(?s:.*){text}"):
            await UVProvider(wrong).start()
    with pytest.raises(ConfigurationError, match="there is no folder nowhere"):
        await UVProvider(f"{address}#subdirectory=nowhere").start()
    with pytest.raises(ServerStartError) as caught:
        await UVProvider("git+http://me:secret@127.0.0.1:1/owner/game").start()
    assert "secret" not in str(caught.value)
    assert fetched() == before


async def test_without_uv_or_git_it_says_what_to_install(
    plain_project: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project = plain_project()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="git is not installed"):
        await UVProvider("git+https://127.0.0.1/owner/game").start()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ConfigurationError, match="pip install uv"):
        await UVProvider(project).start()


async def test_a_start_that_is_cancelled_or_stopped_leaves_nothing(
    plain_project: Any, committed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = fetched()
    address, _ = committed(plain_project())
    started = tmp_path / "started"
    os.mkfifo(started)
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\necho $$ > {started}\nsleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    for how in ("cancelled", "stopped"):
        provider = UVProvider(address)
        ended: list[BaseException] = []

        async def start(provider: UVProvider = provider, ended: list[BaseException] = ended) -> None:
            try:
                await provider.start()
            except BaseException as error:
                ended.append(error)
                if not isinstance(error, ProviderError):
                    raise

        async with anyio.create_task_group() as group:
            group.start_soon(start)
            pid = int(await anyio.to_thread.run_sync(started.read_text))
            if how == "stopped":
                await provider.stop()
            else:
                group.cancel_scope.cancel()
        assert isinstance(ended[0], ProviderError) == (how == "stopped")
        assert how == "cancelled" or "was stopped while its project was prepared" in str(ended[0])
        await provider.stop()
        assert fetched() == before
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_what_a_killed_provider_fetched_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = Checkout()
    script = (
        "import os, tempfile, sys; tempfile.tempdir = sys.argv[1]\n"
        "from openenv_trl.providers.uv.checkout import Checkout\n"
        "checkout = Checkout()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert len(fetched()) == 2
    for folder in fetched():
        os.utime(folder, (0, 0))
    remove_abandoned()
    assert fetched() == {kept._folder}
    kept.remove()
    kept.remove()
    assert fetched() == set()


async def test_the_blocking_form_works_inside_a_running_loop_and_from_other_threads(plain_project: Any) -> None:
    project = plain_project()
    with UVProvider(project) as provider:
        outcome: list[bool] = []
        thread = threading.Thread(target=lambda: outcome.append(provider.alive_sync()))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        assert outcome == [True]
        with pytest.raises(ProviderError, match="runs already"):
            await provider.start()
    with pytest.raises(ProviderError, match="does not run"):
        await provider.wait_exited()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "project: Field required"),
        ({"project": "https://host/x"}, r"a git address begins with git\+https"),
        ({"project": "git+ext::sh -c x"}, "is no git address"),
        ({"project": "git+https://host"}, "names no repository"),
        ({"project": "git+https://h/r@--upload-pack=x"}, "names no repository"),
        ({"project": "git+https://h/r#subdirectory=../x"}, "leads out of the repository"),
        ({"project": "git+https://h/r#branch=x"}, "only #subdirectory=folder is known"),
        ({"project": ".", "app": "server"}, "write it as module:name"),
        ({"project": ".", "port": 80, "replicas": 2}, "is for one server"),
        ({"project": ".", "reload": True, "workers": 2}, "workers=1 only"),
        ({"project": ".", "with": ["x"]}, "it has no field 'with'"),
    ],
)
def test_settings_that_cannot_work_say_what_to_change(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        read_spec({"type": "uv", **fields})


async def test_a_provider_without_a_spec_or_with_anothers_says_so() -> None:
    with pytest.raises(ConfigurationError, match="give it a UVSpec"):
        await UVProvider().start()
    with pytest.raises(ConfigurationError, match="runs a UVSpec, and was given a ProcessSpec"):
        await UVProvider().start(read_spec({"type": "process", "environment": "a:app"}))
