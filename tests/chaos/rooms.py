"""Environments of the chaos tests, served by real processes: they ring a bell, and then do what is told to them.

A task's ``fault`` says what happens, at the step that ``at`` names (0 is the reset).
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from openenv_trl.environment import Environment, tool
from openenv_trl.mcp_environment import MCPEnvironment
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State


class Told(Observation):
    message: str = ""


def ring(words: str) -> None:
    """Tell the test, and wait until it answers or is gone."""
    host, _, port = os.environ["CHAOS_BELL"].partition(":")
    with socket.create_connection((host, int(port))) as bell:
        bell.sendall(f"{os.getpid()} {words}\n".encode())
        bell.recv(1)


def happen(fault: str) -> None:
    if fault == "ring":
        ring("here")
    elif fault == "raises":
        raise ValueError("no such card")
    elif fault == "exits":
        raise SystemExit(3)
    elif fault == "interrupts":
        raise KeyboardInterrupt
    elif fault == "generator exits":
        raise GeneratorExit
    elif fault == "recurses":
        happen("recurses")
    elif fault == "dies":
        os._exit(9)
    elif fault == "hangs":
        time.sleep(60)
    elif fault == "eats memory":  # in a container whose memory is limited only
        eaten: list[bytearray] = []
        while True:
            eaten.append(bytearray(os.urandom(1024)) * 16_384)


class Table(Environment[Action, Told, State]):
    """Three hits end a game."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._hits = 0

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, fault: str = "", at: int = -1, **_: Any
    ) -> Told:
        self._fault, self._at, self._hits = fault, at, 0
        self._play()
        return Told(message=f"Table {seed}.")

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Told:
        raise NotImplementedError

    @tool
    def hit(self) -> Told:
        """Take a card."""
        self._hits += 1
        self._play()
        return Told(message=f"Hit {self._hits}.", reward=1.0, done=self._hits == 3)

    @property
    def state(self) -> State:
        return State(step_count=self._hits)

    def _play(self) -> None:
        if self._hits == self._at:
            happen(self._fault)


class RepeatableTable(Table):
    REPEATABLE = True


class StuckTable(Table):
    """Its constructor never ends."""

    def __init__(self) -> None:
        super().__init__()
        time.sleep(60)


class Desk(MCPEnvironment):
    """Tools that fail in every way that there is; four calls end an episode."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

        @self.tool()
        async def look(drawer: int) -> str:
            """Look into a drawer."""
            if drawer == 13:
                raise FileNotFoundError("there is no drawer 13")
            return f"Drawer {drawer} is empty."

        @self.tool()
        async def dial(number: str) -> str:
            """Call somebody."""
            import anyio

            await anyio.sleep_forever()
            return number

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Told:
        self._calls = 0
        return Told(message="A desk.")

    async def step_async(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        ends = getattr(action, "tool_name", "") != "dial"  # which never does; the others get their time on any machine
        observation = await super().step_async(action, timeout_s=60.0 if ends else 0.3, **kwargs)
        self._calls += 1
        observation.reward, observation.done = 1.0, self._calls == 4
        return observation

    @property
    def state(self) -> State:
        return State(step_count=self._calls)


table = create_app(Table, Action, Told, max_concurrent_envs=16)
small_table = create_app(Table, Action, Told, max_concurrent_envs=2)
repeatable_table = create_app(RepeatableTable, Action, Told, max_concurrent_envs=16)
stuck_table = create_app(StuckTable, Action, Told, max_concurrent_envs=16)
desk = create_app(Desk, Action, Observation, max_concurrent_envs=16)
