"""Steps a second through the Gymnasium bridge: by place of execution, and by way of stepping several sessions.

Each case runs in turn within a round, so that a busy moment of the machine hits all alike. Servers are processes of
this machine; actions are drawn beforehand, and episodes that end are begun anew.

    python benchmarks/gymnasium_bridge.py [--rounds 5] [--steps 100]
"""

from __future__ import annotations

import argparse
import time
import warnings
from contextlib import ExitStack, closing
from typing import Any

import gymnasium
from _record import record, spread

from openenv_trl.client.background import background_portal
from openenv_trl.gymnasium import RemoteEnv, RemoteVectorEnv
from openenv_trl.providers import ProcessProvider

PLACES = {
    "CartPole-v1": ("auto", "loop", "thread", "process"),
    "Acrobot-v1": ("auto", "loop", "thread", "process"),
    "ale_py:ALE/Pong-v5": ("auto", "loop", "thread", "process"),
}
SESSIONS = (1, 4, 16, 64)
PLACED_SESSIONS = 8


def main() -> None:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    with ExitStack() as stack:
        results = {
            "local_steps_per_s": local(given.rounds, given.steps * 20),
            "by_execution_steps_per_s": by_execution(stack, given.rounds, given.steps),
            "by_way_steps_per_s": by_way(stack, given.rounds, given.steps),
        }
    record("gymnasium_bridge", results, [], ["openenv-trl", "gymnasium", "ale-py", "numpy"])


def local(rounds: int, steps: int) -> dict[str, Any]:
    """Gymnasium alone, in this process."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name in ("CartPole-v1", "Acrobot-v1", "ale_py:ALE/Pong-v5"):
            env = gymnasium.make(name)
            env.action_space.seed(0)
            actions = [env.action_space.sample() for _ in range(steps)]
            env.reset(seed=0)
            began = time.perf_counter()
            for action in actions:
                *_, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            found.setdefault(name.rpartition("/")[2], []).append(steps / (time.perf_counter() - began))
            env.close()
    return {name: spread(values, 0) for name, values in found.items()}


def by_execution(stack: ExitStack, rounds: int, steps: int) -> dict[str, Any]:
    """Eight sessions, by where the server runs the environment's code."""
    cases: dict[tuple[str, str], RemoteVectorEnv] = {}
    for target, places in PLACES.items():
        for place in places:
            url = served(stack, f"{target}?execution={place}")
            envs = stack.enter_context(closing(RemoteVectorEnv(url, PLACED_SESSIONS)))
            envs.reset(seed=0)
            cases[target.rpartition("/")[2], place] = envs
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for (name, place), envs in cases.items():
            found.setdefault(name, {}).setdefault(place, []).append(rate(envs, steps))
    return {name: {place: spread(values, 0) for place, values in by.items()} for name, by in found.items()}


def by_way(stack: ExitStack, rounds: int, steps: int) -> dict[str, Any]:
    """CartPole: `RemoteVectorEnv` on both wires, and Gymnasium's own vector of `RemoteEnv`."""
    url = served(stack, "CartPole-v1")
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for number in SESSIONS:
            ways = {
                "remote_vector_native": lambda n=number: RemoteVectorEnv(url, n, wire="native"),
                "remote_vector_openenv": lambda n=number: RemoteVectorEnv(url, n, wire="openenv"),
                "sync_vector_of_remote": lambda n=number: gymnasium.vector.SyncVectorEnv([lambda: RemoteEnv(url)] * n),
            }
            for way, make in ways.items():
                with closing(make()) as envs:
                    envs.reset(seed=0)
                    found.setdefault(way, {}).setdefault(str(number), []).append(rate(envs, steps))
    return {way: {number: spread(values, 0) for number, values in by.items()} for way, by in found.items()}


def served(stack: ExitStack, target: str) -> str:
    """Serve an environment until the stack is left. Returns its address."""
    portal = background_portal()
    provider = ProcessProvider("openenv_trl.gymnasium.app:app", env_vars={"GYMNASIUM_ENV": target})
    url = portal.call(provider.start).base_url
    stack.callback(portal.call, provider.stop)
    return url


def rate(envs: Any, steps: int) -> float:
    """Steps a second of all sessions together."""
    actions = [envs.action_space.sample() for _ in range(steps)]
    for action in actions[: steps // 5]:
        envs.step(action)
    began = time.perf_counter()
    for action in actions:
        envs.step(action)
    return steps * envs.num_envs / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
