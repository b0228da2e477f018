from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from openenv_trl.client import GenericEnvClient, SyncEnvClient
from openenv_trl.errors import ActionValidationError, DeadlineExceededError, SessionLostError

pytestmark = pytest.mark.usefixtures("wire")


def test_an_episode(parrot: str) -> None:
    with GenericEnvClient(parrot).sync() as env:
        assert isinstance(env, SyncEnvClient)
        assert env.base_url == parrot
        assert env.reset(seed=1).observation["text"] == "ready"
        assert env.step({"text": "bye"}).done
        assert env.state()["step_count"] == 1
        assert env.list_tools() == []


def test_errors_are_those_of_the_asynchronous_client(parrot: str) -> None:
    with GenericEnvClient(parrot).sync() as env:
        with pytest.raises(ActionValidationError):
            env.step({"text": 5})
        with pytest.raises(DeadlineExceededError):
            env.step({"waits": True}, timeout_s=0.1)
        with pytest.raises(SessionLostError):
            env.reset()


def test_threads_on_one_client_each_get_their_own_reply(parrot: str) -> None:
    with GenericEnvClient(parrot).sync() as env, ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda n: env.step({"text": str(n)}).observation["text"], range(100))
        assert list(answers) == [str(n) for n in range(100)]


def test_many_clients_share_one_thread(parrot: str) -> None:
    clients = [GenericEnvClient(parrot).sync().connect() for _ in range(8)]
    assert sum(thread.name == "openenv-clients" for thread in threading.enumerate()) == 1
    for client in clients:
        client.close()


def test_a_client_that_was_never_closed_does_not_keep_the_process(parrot: str) -> None:
    code = (
        f"from openenv_trl import GenericEnvClient\nenv = GenericEnvClient({parrot!r}).sync()\nprint(env.reset().done)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


def _play(url: str) -> None:
    with GenericEnvClient(url).sync() as env:
        env.reset()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_process_has_clients_of_its_own(parrot: str) -> None:
    _play(parrot)
    child = multiprocessing.get_context("fork").Process(target=_play, args=(parrot,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
