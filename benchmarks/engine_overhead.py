"""What the rollout engine costs beside a bare coroutine loop that makes the same calls of the same sessions.

Sessions are in memory: a reset takes no time, a step 10 ms. Each episode has ten turns of one tool call; the policy
says what it is told at once. Three ways of playing them are measured in turn, round after round:

- ``calls``: coroutines that call ``reset`` and ``step`` and do nothing else: no text, no token, no policy;
- ``by_hand``: the same, with what a trainer must have: the prompt rendered and encoded with the chat template, a
  completion for each turn, its call parsed, the observation encoded and appended. Each turn waits for all, as a
  batched policy makes it;
- ``engine``: `RolloutEngine.run`, with all that it promises beside. The policy always says the same, so that what the
  engine remembers of messages it has read (and of prompts, from round to round) spares it work that ``by_hand`` does.

Then 256 episodes of one step of 100 ms.

    python benchmarks/engine_overhead.py [--rounds 9] [--quick]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import anyio
from _record import RESULTS, Target, record, spread

from openenv_trl.rollout import Completion, RolloutEngine, RolloutLimits, ScriptedPolicy, Task
from openenv_trl.training.tiny_policy import make_tokenizer
from openenv_trl.types import StepResult, Tool

TURNS, STEP_S = 10, 0.01
EPISODES = (1, 16, 64, 256)
TOOL = Tool(name="hit", description="Take a card.", input_schema={"type": "object", "properties": {}})
PROMPT = [{"role": "user", "content": "Play a hand."}]
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "hit", "arguments": {}}}],
}


class MemorySession:
    """A game in memory, each of whose steps takes so long."""

    def __init__(self, turns: int, step_s: float) -> None:
        self._turns, self._step_s, self._steps = turns, step_s, 0
        self._seed = 0

    async def reset(self, seed: int = 0, **_: Any) -> StepResult[dict[str, Any]]:
        """Begin, at once."""
        self._steps, self._seed = 0, seed
        return StepResult({"message": f"Hand {seed} begins."})

    async def step(self, action: Any, timeout_s: float | None = None) -> StepResult[dict[str, Any]]:
        """Take a card."""
        await anyio.sleep(self._step_s)
        self._steps += 1
        message = f"Hand {self._seed}, card {self._steps}."
        return StepResult({"message": message}, reward=1.0, done=self._steps == self._turns)

    async def list_tools(self) -> list[Tool]:
        """The one tool."""
        return [TOOL]

    async def close(self) -> None:
        """Nothing to do."""
        return


class MemoryPool:
    """Lends such sessions."""

    def __init__(self, turns: int, step_s: float) -> None:
        self._new = lambda: SimpleNamespace(session=MemorySession(turns, step_s), base_url="memory")
        self._free: list[Any] = []

    async def acquire(self, timeout_s: float) -> Any:
        """Lend one."""
        return self._free.pop() if self._free else self._new()

    async def release(self, lease: Any, *, healthy: bool) -> None:
        """Take one back."""
        self._free.append(lease)


class SaysOneThing(ScriptedPolicy):
    """Gives the same completion for each prompt, without looking at it."""

    def __init__(self, template: Any) -> None:
        super().__init__(template, lambda _: CALL)
        self._said = Completion(tuple(template.message_ids(CALL)), [0.0] * len(template.message_ids(CALL)), True)

    async def generate(self, prompts: Any, sampling: Any) -> list[Completion]:
        """The same for each."""
        return [self._said] * len(prompts)


async def play_calls(episodes: int, turns: int, step_s: float) -> None:
    """Nothing but the calls."""

    async def play(seed: int) -> None:
        session = MemorySession(turns, step_s)
        await session.reset(seed=seed)
        done = False
        while not done:
            done = (await session.step({"type": "call_tool", "tool_name": "hit", "arguments": {}})).done

    async with anyio.create_task_group() as group:
        for seed in range(episodes):
            group.start_soon(play, seed)


def by_hand(tokenizer: Any, said: list[int]) -> Callable[[int, int, float], Awaitable[None]]:
    """What anyone has to do for a trainer, in the order of a batched loop."""
    definition = {
        "type": "function",
        "function": {"name": TOOL.name, "description": TOOL.description, "parameters": TOOL.input_schema},
    }

    async def play(episodes: int, turns: int, step_s: float) -> None:
        sessions = [MemorySession(turns, step_s) for _ in range(episodes)]
        prompts: list[list[int]] = []
        completions: list[list[int]] = [[] for _ in sessions]
        masks: list[list[int]] = [[] for _ in sessions]
        for seed, session in enumerate(sessions):
            first = await session.reset(seed=seed)
            messages = [{"role": "user", "content": f"{PROMPT[0]['content']}\n\n{first.observation['message']}"}]
            text = tokenizer.apply_chat_template(
                messages, tools=[definition], add_generation_prompt=True, tokenize=False
            )
            prompts.append(tokenizer.encode(text, add_special_tokens=False))

        async def step(index: int) -> None:
            message = tokenizer.parse_response(said, prefix="")
            call = message["tool_calls"][0]["function"]
            completions[index] += said
            masks[index] += [1] * len(said)
            action = {"type": "call_tool", "tool_name": call["name"], "arguments": call["arguments"]}
            result = await sessions[index].step(action)
            if not result.done:
                answer = f"\n<|im_start|>tool\n{result.observation['message']}<|im_end|>\n<|im_start|>assistant\n"
                ids = tokenizer.encode(answer, add_special_tokens=False)
                completions[index] += ids
                masks[index] += [0] * len(ids)

        for _ in range(turns):
            contexts = [prompt + completion for prompt, completion in zip(prompts, completions, strict=True)]
            assert len(contexts) == episodes  # what the policy would be given
            async with anyio.create_task_group() as group:
                for index in range(episodes):
                    group.start_soon(step, index)

    return play


def by_engine(tokenizer: Any) -> Callable[[int, int, float], Awaitable[None]]:
    """The engine, prepared once for each kind of session, as in a training run."""
    engines: dict[tuple[int, float], RolloutEngine] = {}

    async def play(episodes: int, turns: int, step_s: float) -> None:
        if (turns, step_s) not in engines:
            limits = RolloutLimits(max_turns=turns + 1, max_completion_tokens=100_000)
            engines[turns, step_s] = RolloutEngine(MemoryPool(turns, step_s), tokenizer, limits=limits)
            await engines[turns, step_s].prepare()
        engine = engines[turns, step_s]
        tasks = [Task(PROMPT, {"seed": seed}, group=seed // 8, index=seed) for seed in range(episodes)]
        trajectories = await engine.run(tasks, SaysOneThing(engine.template))
        assert all(len(each.turns) == turns and each.reward == turns for each in trajectories)

    return play


async def timed(play: Callable[[int, int, float], Awaitable[None]], *arguments: Any) -> tuple[float, float]:
    """Seconds on the wall, and of the processor, of one run."""
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    await play(*arguments)
    return time.perf_counter() - wall, time.process_time() - processor


async def measure(rounds: int) -> dict[str, Any]:
    texts = [f"Hand {n}, card {n % 10}. Play a hand. Hand {n} begins." for n in range(256)]
    tokenizer = make_tokenizer(texts, [TOOL])
    probe = RolloutEngine(MemoryPool(1, 0.0), tokenizer)
    await probe.prepare()
    ways = {
        "calls": play_calls,
        "by_hand": by_hand(tokenizer, probe.template.message_ids(CALL)),
        "engine": by_engine(tokenizer),
    }
    results: dict[str, Any] = {}
    for episodes in EPISODES:
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for number in range(rounds + 1):  # the first warms up
            for name, play in ways.items():
                figures = await timed(play, episodes, TURNS, STEP_S)
                if number:
                    taken[name].append(figures)
        table: dict[str, Any] = {}
        for name, figures in taken.items():
            wall, processor = [each[0] for each in figures], [each[1] for each in figures]
            table[name] = {"seconds": spread(wall), "processor_s": spread(processor)}
        bare, engine, hand = (table[name]["seconds"]["median"] for name in ("calls", "engine", "by_hand"))
        least = {name: table[name]["seconds"]["min"] for name in table}
        table["overhead_over_calls"] = round(engine / bare - 1, 4)
        table["overhead_over_calls_of_best_rounds"] = round(least["engine"] / least["calls"] - 1, 4)
        table["overhead_over_by_hand"] = round(engine / hand - 1, 4)
        turns = episodes * TURNS
        extra = table["engine"]["processor_s"]["median"] - table["calls"]["processor_s"]["median"]
        table["engine_processor_us_per_turn"] = round(extra / turns * 1e6, 1)
        extra = table["by_hand"]["processor_s"]["median"] - table["calls"]["processor_s"]["median"]
        table["by_hand_processor_us_per_turn"] = round(extra / turns * 1e6, 1)
        results[f"{episodes}_episodes"] = table
    one = [await timed(ways["engine"], 256, 1, 0.1) for _ in range(rounds + 1)][1:]
    results["256_episodes_of_one_step_of_100_ms"] = {
        "seconds": spread([wall for wall, _ in one]),
        "processor_s": spread([processor for _, processor in one]),
    }
    return results


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="few rounds; the stored results stay as they are")
    options = parser.parse_args()
    results = anyio.run(measure, 2 if options.quick else options.rounds)
    if options.quick:
        print(json.dumps(results, indent=2))
        return
    targets: list[Target] = []
    for episodes in EPISODES:
        table = results[f"{episodes}_episodes"]
        us = table["engine_processor_us_per_turn"]
        targets.append(
            Target(
                f"overhead over bare calls, episodes: {episodes}, a step: 10 ms",
                table["overhead_over_calls"],
                "<= 0.05",
                ""
                if table["overhead_over_calls"] <= 0.05
                else f"{episodes} turns share 10 ms of one core; each takes {us:g} us of it, by hand "
                f"{table['by_hand_processor_us_per_turn']:g} us",
            )
        )
        targets.append(
            Target(
                f"overhead over the same work by hand, episodes: {episodes}",
                table["overhead_over_by_hand"],
                "<= 0.05",
                "" if table["overhead_over_by_hand"] <= 0.05 else "see the processor's time a turn",
            )
        )
    wide = results["256_episodes_of_one_step_of_100_ms"]
    seconds, processor_s = wide["seconds"]["median"], wide["processor_s"]["median"]
    spent = (
        f"{processor_s:g} s of it are the run's own processor time, 0.1 s the step; see load_average_1min for the rest"
    )
    why = "" if seconds <= 0.25 else spent
    targets.append(Target("256 episodes of one step of 100 ms, s", seconds, "<= 0.25", why))
    packages = ["openenv-trl", "anyio", "tokenizers", "transformers"]
    path: Path = record("engine_overhead", {"turns": TURNS, "step_s": STEP_S, **results}, targets, packages, RESULTS)
    print(path)


if __name__ == "__main__":
    main()
