"""The environments of the interop suite, and their clients, written once for both packages: only the imports differ."""

from __future__ import annotations

from typing import Any

from pydantic import Field

try:
    from openenv.core.client_types import StepResult
    from openenv.core.env_client import EnvClient
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.mcp_environment import MCPEnvironment
    from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
    from openenv.core.env_server.types import Action, Observation, State
except ImportError:
    from openenv_trl.client import EnvClient
    from openenv_trl.environment import Environment
    from openenv_trl.mcp_environment import MCPEnvironment
    from openenv_trl.server import create_app
    from openenv_trl.types import Action, CallToolAction, Observation, State, StepResult
    from openenv_trl.wire.tools import CallToolObservation


class ProbeAction(Action):
    message: str = Field(min_length=1)
    n: int = 0


class ProbeObservation(Observation):
    echoed: str = ""
    n: int = 0


class ProbeState(State):
    total: int = 0


class Probe(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = ProbeState(episode_id="init")

    def reset(self, seed: Any = None, episode_id: str | None = None, level: int = 0) -> ProbeObservation:
        self._state = ProbeState(episode_id="ep")
        return ProbeObservation(echoed=f"ready seed={seed} level={level}")

    def step(self, action: ProbeAction, timeout_s: float | None = None, **kw: Any) -> ProbeObservation:
        self._state.step_count += 1
        message = action.message
        if message == "boom":
            raise ValueError("kaboom")
        if message == "valerr":
            ProbeAction(message="")
        if message == "boolreward":
            return ProbeObservation(echoed="b", reward=True, done=True)
        reward = {"nan": float("nan"), "inf": float("inf")}.get(message, 1.5)
        metadata = {"k": 1, "kw": kw, "timeout_s": timeout_s} if message == "meta" else {}
        return ProbeObservation(echoed=message, n=action.n, reward=reward, done=message == "end", metadata=metadata)

    @property
    def state(self) -> ProbeState:
        return self._state

    # The task API.

    def list_splits(self) -> list[Any]:
        return ["train", {"name": "hard", "type": "test"}]

    def list_tasks(self, split: str) -> list[Any]:
        return [{"id": f"{split}-{index}"} for index in range(3)]

    def num_tasks(self, split: str) -> int:
        return 3

    def get_task(self, split: str, index: int) -> Any:
        return self.list_tasks(split)[index]


class AsyncProbe(Probe):
    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **kw: Any) -> ProbeObservation:
        self._state = ProbeState(episode_id="aep")
        return ProbeObservation(echoed=f"areset seed={seed} kw={sorted(kw)}")

    async def step_async(self, action: ProbeAction, timeout_s: float | None = None, **kw: Any) -> ProbeObservation:
        self._state.step_count += 1
        self._state.total += 1
        return ProbeObservation(echoed=f"async:{action.message}", reward=2)


class BadFactory(Probe):
    def __init__(self) -> None:
        raise OSError("no such game")


class Desk(MCPEnvironment):
    """Tools. Each session counts its own calls."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        from fastmcp import FastMCP

        server = FastMCP("desk")
        self._calls = 0
        self._state = State(episode_id="init")

        @server.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            self._calls += 1
            return a + b

        @server.tool
        def greet(name: str) -> str:
            """Greet."""
            self._calls += 1
            return f"hello {name}"

        @server.tool
        def count() -> dict[str, int]:
            self._calls += 1
            return {"calls": self._calls}

        @server.tool
        def fail() -> str:
            """Fail."""
            raise RuntimeError("the ink is dry")

        super().__init__(server)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        self._calls = 0
        self._state = State(episode_id=episode_id or "ep")
        return Observation(reward=0.0, metadata={"status": "ready"})

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        self._state.step_count += 1
        return super().step(action, timeout_s=timeout_s, **kwargs)

    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        self._state.step_count += 1
        return await super().step_async(action, timeout_s=timeout_s, **kwargs)

    def _step_impl(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation(metadata={"unknown": type(action).__name__})

    @property
    def state(self) -> State:
        return self._state


class ProbeEnv(EnvClient):
    """The typed client, as environment packages have them."""

    def _step_payload(self, action: ProbeAction) -> dict[str, Any]:
        return {"message": action.message, "n": action.n}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult:
        observation = ProbeObservation(
            **payload["observation"], reward=payload.get("reward"), done=payload.get("done", False)
        )
        return StepResult(observation=observation, reward=payload.get("reward"), done=payload.get("done", False))

    def _parse_state(self, payload: dict[str, Any]) -> ProbeState:
        return ProbeState(**payload)


def probe_app(env: Any, sessions: int, mode: str | None = None) -> Any:
    return create_app(
        env, ProbeAction, ProbeObservation, "probe", max_concurrent_envs=sessions, state_cls=ProbeState, mode=mode
    )


def desk_app(sessions: int) -> Any:
    return create_app(Desk, CallToolAction, CallToolObservation, "desk", max_concurrent_envs=sessions)


APPS = {
    "probe": lambda: probe_app(Probe, 16),
    "production": lambda: probe_app(Probe, 16, "production"),
    "lonely": lambda: probe_app(Probe, 1),
    "async_probe": lambda: probe_app(AsyncProbe, 16),
    "bad_factory": lambda: probe_app(BadFactory, 1),
    "desk": lambda: desk_app(16),
    "lonely_desk": lambda: desk_app(1),
}
