"""Ways to bring a dialogue to a trainer, played with one small model: ours, re-tokenising, and the public package's.

Each gives, for every message of the model, how far the log-prob that a trainer computes is from the one at sampling.
The model (Qwen3, 2 layers of 64, random weights) writes a few tokens freely, as a model does that explores, and then a
call; so it writes ids that the tokenizer would not choose for their text.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from openenv_trl.rollout import Completion, RolloutEngine, RolloutLimits, SamplingParameters, Task, ToolActions
from openenv_trl.types import StepResult, Tool

CALL = '<tool_call>\n{"name": "hit", "arguments": {"n": 1}}\n</tool_call><|im_end|>'
HIT = Tool(name="hit", description="Take a card.", input_schema={"type": "object", "properties": {"n": {}}})
PROMPT = [{"role": "user", "content": "Play blackjack. Your hand: 10, 6."}]


@dataclass
class Measured:
    """Differences of log-probs of one way, and how its ids fared."""

    differences: list[float] = field(default_factory=list)
    messages: int = 0
    changed: int = 0
    prompt_tokens: list[int] = field(default_factory=list)
    drift: float | None = None
    """What the engine counts; the other ways count nothing."""

    def figures(self) -> dict[str, float]:
        count = max(len(self.differences), 1)
        figures = {
            "mean_abs_logprob_difference": round(sum(self.differences) / count, 9),
            "max_abs_logprob_difference": round(max(self.differences, default=0.0), 9),
            "messages": self.messages,
            "messages_with_other_ids": self.changed,
            "prompt_tokens_mean": round(sum(self.prompt_tokens) / max(len(self.prompt_tokens), 1), 1),
        }
        return figures if self.drift is None else {**figures, "drift": self.drift}


class Sampler:
    """Writes a message in a context, and knows the log-probs of ids in any."""

    def __init__(self, model: Any, tokenizer: Any, seed: int) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        with torch.no_grad():  # random weights are small: enlarged, what the model expects depends on the context
            for weights in (p for p in model.parameters() if p.dim() > 1):
                weights.mul_(0.1 / weights.std())
        self.generator = torch.Generator().manual_seed(seed)
        special = set(tokenizer.all_special_ids)
        texts = {token: tokenizer.decode([token]) for token in range(len(tokenizer)) if token not in special}
        letters = [token for token, text in texts.items() if text.isascii() and text.strip().isalnum()]
        self.free = torch.tensor(letters)
        self.call = tokenizer.encode(CALL, add_special_tokens=False)

    @torch.no_grad()
    def write(self, context: Sequence[int]) -> tuple[list[int], list[float]]:
        ids: list[int] = []
        for _ in range(10):
            logits = self.model(torch.tensor([[*context, *ids]])).logits[0, -1, self.free]
            drawn = torch.multinomial(logits.softmax(-1), 1, generator=self.generator)
            ids.append(int(self.free[drawn]))
        ids += self.call
        return ids, self.logprobs(context, ids)

    @torch.no_grad()
    def logprobs(self, context: Sequence[int], ids: Sequence[int]) -> list[float]:
        logits = self.model(torch.tensor([[*context, *ids]])).logits[0, len(context) - 1 : -1]
        return logits.log_softmax(-1).gather(-1, torch.tensor([*ids])[:, None])[:, 0].tolist()


def answers(episode: int, turns: int) -> list[str]:
    generator = random.Random(episode)
    return [f"You drew {generator.randint(1, 10)}. Sum {generator.randint(11, 21)}." for _ in range(turns)]


class _Pool:
    """Sessions in memory."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    async def acquire(self, timeout_s: float) -> Any:
        return SimpleNamespace(session=self, base_url="memory")

    async def release(self, lease: Any, *, healthy: bool) -> None:
        pass

    async def list_tools(self) -> list[Tool]:
        return [HIT]

    async def reset(self, **arguments: Any) -> StepResult[dict[str, Any]]:
        self.left = answers(arguments["seed"], self.turns)
        return StepResult({"message": ""})

    async def step(self, action: Any, timeout_s: float | None = None) -> StepResult[dict[str, Any]]:
        text = self.left.pop(0)
        return StepResult({"message": text}, 1.0, not self.left)


def ours(sampler: Sampler, turns: int, episodes: int) -> Measured:
    """Rollouts of this package."""
    import anyio

    class Writes:
        async def generate(self, prompts: Any, sampling: SamplingParameters) -> list[Completion]:
            return [Completion(*sampler.write(prompt), finished=True) for prompt in prompts]

    measured = Measured()
    limits = RolloutLimits(max_turns=turns, max_completion_tokens=100_000)
    for episode in range(episodes):
        engine = RolloutEngine(_Pool(turns), sampler.tokenizer, actions=ToolActions([HIT]), limits=limits)
        (played,) = anyio.run(engine.run, [Task(PROMPT, {"seed": episode})], Writes())
        assert len(played.turns) == turns, played.error
        trained = sampler.logprobs(played.prompt_ids, played.completion_ids)
        sampled = zip(trained, played.logprobs or [], played.mask, strict=True)
        measured.differences += [abs(now - then) for now, then, is_sampled in sampled if is_sampled]
        measured.messages += turns
        measured.prompt_tokens.append(len(played.prompt_ids))
        measured.drift = (measured.drift or 0.0) + engine.metrics["drift"]
    return measured


def retokenised(sampler: Sampler, turns: int, episodes: int) -> Measured:
    """Decode each message, render and encode the whole conversation: at each turn, and for training."""
    measured, tokenizer = Measured(), sampler.tokenizer
    for episode in range(episodes):
        messages, sampled = [dict(message) for message in PROMPT], []
        for text in answers(episode, turns):
            context = _encoded(tokenizer, _rendered(tokenizer, messages, begin=True))
            ids, logprobs = sampler.write(context)
            sampled.append((len(messages), ids, logprobs))
            messages += [
                tokenizer.parse_response(ids, prefix=context),
                {"role": "tool", "name": "hit", "content": text},
            ]
        whole = _rendered(tokenizer, messages)
        encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
        row, places = encoded["input_ids"], encoded["offset_mapping"]
        trained = [0.0, *sampler.logprobs(row[:1], row[1:])]
        for place, ids, logprobs in sampled:
            start = len(_rendered(tokenizer, messages[:place], begin=True))
            end = len(_rendered(tokenizer, messages[: place + 1]).removesuffix("\n"))
            inside = [index for index, (first, last) in enumerate(places) if first >= start and last <= end]
            of_message = sum(trained[index] for index in inside)
            measured.differences.append(abs(of_message - sum(logprobs)) / len(ids))
            measured.changed += [row[index] for index in inside] != ids
        measured.messages += turns
        measured.prompt_tokens.append(len(_encoded(tokenizer, _rendered(tokenizer, PROMPT, begin=True))))
    return measured


def public(sampler: Sampler, python: str, turns: int, episodes: int) -> Measured:
    """The public package's ``build_harness_rollout_func``."""
    tokenizer, measured = sampler.tokenizer, Measured()
    script = Path(__file__).with_name("_public_bridge.py")
    with subprocess.Popen(
        [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        tasks = [{"messages": PROMPT, "answers": answers(e, turns), "turns": turns} for e in range(episodes)]
        child.stdin.write(json.dumps(tasks) + "\n")
        child.stdin.flush()
        for line in child.stdout:
            told = json.loads(line)
            if "rows" in told:
                break
            context = _encoded(
                tokenizer, _rendered(tokenizer, [_with_objects(m) for m in told["messages"]], begin=True)
            )
            ids, logprobs = sampler.write(context)
            said = tokenizer.parse_response(ids, prefix=context)
            calls = [call["function"] for call in said["tool_calls"]]
            reply = {"prompt_ids": context, "completion_ids": ids, "logprobs": logprobs, "calls": calls}
            child.stdin.write(json.dumps({**reply, "content": said.get("content") or ""}) + "\n")
            child.stdin.flush()
    rows = told["rows"]
    for prompt, completion, logprobs in zip(rows["prompt_ids"], rows["completion_ids"], rows["logprobs"], strict=True):
        trained = sampler.logprobs(prompt, completion)
        measured.differences += [abs(now - then) for now, then in zip(trained, logprobs, strict=True)]
        measured.messages += turns
        measured.prompt_tokens.append(len(prompt))
    return measured


def _with_objects(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls", [])
    ]
    return {**message, "tool_calls": calls} if calls else message


def _rendered(tokenizer: Any, messages: Any, *, begin: bool = False) -> str:
    definition = {"name": HIT.name, "description": HIT.description, "parameters": HIT.input_schema}
    return tokenizer.apply_chat_template(
        messages, tools=[{"type": "function", "function": definition}], add_generation_prompt=begin, tokenize=False
    )


def _encoded(tokenizer: Any, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)
