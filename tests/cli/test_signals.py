"""However ``openenv-trl train`` ends, its training and its environment servers end with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc, and waits on pidfds"),
]


def descendants(root: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            stat = (entry / "stat").read_text()
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def command_of(pid: int) -> str:
    with suppress(OSError):  # it may have ended
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


TRAIN = ("-m", "openenv_trl.cli", "train")
QUICKSTART = ("recipes/quickstart.py",)


class Training:
    """A training that takes its steps until it is ended, and every process of it."""

    def __init__(self, folder: Path, *options: str, program: Sequence[str] = TRAIN) -> None:
        command = [
            *(sys.executable, *program, "configs/blackjack_cpu.yaml", *options),
            *("--model_name_or_path", f"{folder}/warm_start", "--output_dir", f"{folder}/grpo"),
            *("--warm_start_episodes", "64", "--warm_start_steps", "2", "--sessions_per_server", "16"),
            *("--per_device_train_batch_size", "8", "--num_generations", "4", "--num_tasks", "64"),
            *("--max_steps", "100000", "--save_strategy", "no", "--logging_steps", "1"),
        ]
        self.errors = (folder / "errors").open("w+")
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self.errors, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if re.search(r"step +\d+/100000", line):
                break
        else:
            raise AssertionError(self.messages())
        # Read on, so that it never waits for a full pipe.
        self.reader = threading.Thread(target=self.process.stdout.read, daemon=True)
        self.reader.start()
        self.handles: dict[int, int] = {}
        for pid in descendants(self.process.pid):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                self.handles[pid] = os.pidfd_open(pid)
        self.pids = set(self.handles)

    def messages(self) -> str:
        return Path(self.errors.name).read_text()

    async def ended(self, within_s: float) -> None:
        with anyio.fail_after(within_s):
            for handle in self.handles.values():
                await anyio.wait_readable(handle)

    def leave_nothing(self) -> None:
        for handle in self.handles.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
        self.process.wait()
        self.reader.join()
        self.errors.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


Start = Callable[..., Training]


@pytest.fixture(name="train")
def train_fixture(tmp_path: Path) -> Iterator[Start]:
    """Starts a training; after the test nothing of it is left, whatever the test found."""
    started: list[Training] = []

    def start(*options: str, program: Sequence[str] = TRAIN) -> Training:
        started.append(Training(tmp_path, *options, program=program))
        return started[-1]

    yield start
    for training in started:
        training.leave_nothing()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
async def test_a_signal_to_the_command_ends_training_and_servers(train: Start, number: signal.Signals) -> None:
    training = train()
    assert any("openenv_trl.server" in command_of(pid) for pid in training.pids)
    training.process.send_signal(number)
    await training.ended(within_s=120)
    if number != signal.SIGINT:
        assert training.process.wait() == -number
    else:
        assert training.process.wait() != 0
        assert "Traceback" not in training.messages()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
async def test_a_signal_to_the_command_ends_training_of_several_processes(train: Start, number: signal.Signals) -> None:
    training = train("--num-processes", "2")
    assert sum("grpo.py" in command_of(pid) for pid in training.pids) >= 2
    training.process.send_signal(number)
    await training.ended(within_s=120)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
async def test_a_signal_to_the_quickstart_ends_its_training_and_servers(train: Start, number: signal.Signals) -> None:
    training = train("--evaluation_episodes", "16", program=QUICKSTART)
    assert any("grpo.py" in command_of(pid) for pid in training.pids)
    training.process.send_signal(number)
    await training.ended(within_s=120)
