"""Environments for processes of their own. A test copies this module to where a worker process can import it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import Any

import anyio
import anyio.lowlevel

from openenv_trl.environment import Environment, tool
from openenv_trl.errors import ActionValidationError
from openenv_trl.types import Action, EnvironmentMetadata, Observation, State


class Order(Action):
    what: str = ""


class Report(Observation):
    pid: int = 0
    text: str = ""
    value: Any = None


class Worker(Environment[Order, Report, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    EXECUTION = "process"

    def __init__(self) -> None:
        self.steps = 0
        self.closed_file = ""

    def reset(self, seed: int | None = None, episode_id: str | None = None, level: int = 0) -> Report:
        return Report(pid=os.getpid(), text=f"level {level}", value=random.random())  # noqa: TID251 (that of each process)

    def step(self, action: Order, timeout_s: float | None = None, **kwargs: Any) -> Report:
        self.steps += 1
        match action.what:
            case "raise":
                raise LookupError("no such room")
            case "refuse":
                raise ActionValidationError("not that door", errors=[{"loc": ["what"], "msg": "not that door"}])
            case "exit":
                os._exit(3)
            case "sys.exit":
                sys.exit(4)
            case "hang":
                while True:
                    pass
            case "child":
                child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                return Report(value=child.pid)
            case "unsendable":
                return Report(value=lambda: None)
            case "large":
                return Report(text="x" * 3_000_000)
            case _ if action.what.startswith("close into "):
                self.closed_file = action.what.removeprefix("close into ")
            case _:
                pass
        return Report(pid=os.getpid(), text=action.what)

    @property
    def state(self) -> State:
        return State(step_count=self.steps)

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name="worker", description=f"Process {os.getpid()}")

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def room(self, name: str) -> str:
        return f"{name} of {os.getpid()}"

    def close(self) -> None:
        if self.closed_file:
            with open(self.closed_file, "a") as file:
                file.write(f"{os.getpid()}\n")


class AsyncWorker(Worker):
    async def step_async(self, action: Order, timeout_s: float | None = None, **kwargs: Any) -> Report:
        if action.what == "hang":
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
        return self.step(action)

    @tool
    async def wait(self) -> str:
        """Wait a moment."""
        await anyio.lowlevel.checkpoint()
        return "waited"


class Clinging(Worker):
    def close(self) -> None:
        time.sleep(600)


class Unbuildable(Worker):
    def __init__(self) -> None:
        raise OSError("no display")


class Crashing(Worker):
    def __init__(self) -> None:
        os._exit(5)


def build() -> Worker:
    return Worker()
