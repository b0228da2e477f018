"""What rollouts are tested with: a small real tokenizer, sessions in memory, and a policy that says what it is told.

The tokenizer is byte-level BPE with ChatML markers, a template with tools, and a response template to read them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from openenv_trl.rollout import Completion, RolloutEngine, RolloutLimits, SamplingParameters, Task
from openenv_trl.types import StepResult, Tool

CHAT_TEMPLATE = """\
{%- if tools %}<|im_start|>system
You can call these functions:{% for tool in tools %}
{{ tool.function | tojson }}{% endfor %}
Answer with <tool_call>{"name": ..., "arguments": {...}}</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}
{%- if loop.first or messages[loop.index0 - 1].role != "tool" %}<|im_start|>user{% endif %}
<tool_response>
{{ message.content }}
</tool_response>
{%- if loop.last or messages[loop.index0 + 1].role != "tool" %}<|im_end|>
{% endif %}
{%- else %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] -%}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

RESPONSE_TEMPLATE: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}


def make_tokenizer(*, pad_is_eos: bool = False) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = ["Your hand: 10, 6. Sum 16, no usable ace. The dealer shows 7.", CHAT_TEMPLATE] * 4
    tokenizer.train_from_iterator(corpus, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>" if pad_is_eos else "<|endoftext|>",
    )
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    fast.chat_template = CHAT_TEMPLATE
    fast.response_template = RESPONSE_TEMPLATE
    return fast


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return make_tokenizer()


@pytest.fixture(scope="session")
def new_tokenizer() -> Callable[..., Any]:
    """Makes tokenizers of one's own, to be changed."""
    return make_tokenizer


class MemorySession:
    """A session without a server: a counting game, or whatever `behave` makes of each call."""

    def __init__(self, pool: MemoryPool, number: int) -> None:
        self.pool, self.number = pool, number
        self.calls: list[tuple[str, Any]] = []
        self.closed = False
        self.steps = 0

    async def reset(self, **kwargs: Any) -> StepResult[dict[str, Any]]:
        self.calls.append(("reset", kwargs))
        self.steps = 0
        return await self.pool.behave(self, "reset", kwargs)

    async def step(self, action: Any, timeout_s: float | None = None) -> StepResult[dict[str, Any]]:
        self.calls.append(("step", action))
        self.steps += 1
        return await self.pool.behave(self, "step", action)

    async def list_tools(self) -> list[Tool]:
        return self.pool.tools

    async def close(self) -> None:
        self.closed = True


class MemoryPool:
    """A pool of such sessions: lends each once, keeps the healthy ones."""

    def __init__(self, behave: Behaviour, tools: list[Tool]) -> None:
        self.behave, self.tools = behave, tools
        self.sessions: list[MemorySession] = []
        self.free: list[MemorySession] = []
        self.leased = 0
        self.refuse: Exception | None = None

    async def acquire(self, timeout_s: float) -> Any:
        if self.refuse is not None:
            raise self.refuse
        if not self.free:
            self.sessions.append(MemorySession(self, len(self.sessions)))
            self.free.append(self.sessions[-1])
        self.leased += 1
        return SimpleNamespace(session=self.free.pop(), base_url="memory")

    async def release(self, lease: Any, *, healthy: bool) -> None:
        await anyio.lowlevel.checkpoint()
        self.leased -= 1
        if healthy:
            self.free.append(lease.session)
        else:
            await lease.session.close()


Behaviour = Callable[[MemorySession, str, Any], Awaitable[StepResult[dict[str, Any]]]]

TOOLS = [
    Tool(name="hit", description="Take a card.", input_schema={"type": "object", "properties": {}}),
    Tool(
        name="bet",
        description="Place a bet.",
        input_schema={"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]},
    ),
]


async def three_steps(session: MemorySession, call: str, argument: Any) -> StepResult[dict[str, Any]]:
    """Three steps, each rewarded with 1; says how many were taken."""
    if call == "reset":
        return StepResult({"message": f"Begin {argument.get('seed', 0)}.", "metadata": {}})
    return StepResult({"message": f"Step {session.steps}."}, reward=1.0, done=session.steps == 3)


@pytest.fixture
def make_engine(tokenizer: Any) -> Callable[..., tuple[RolloutEngine, MemoryPool]]:
    """An engine over a pool of sessions in memory."""

    def make(
        behave: Behaviour = three_steps, tools: list[Tool] | None = None, **settings: Any
    ) -> tuple[RolloutEngine, MemoryPool]:
        pool = MemoryPool(behave, TOOLS if tools is None else tools)
        limits = {"retry_delay_s": 0.0, **settings.pop("limits", {})}
        return RolloutEngine(pool, tokenizer, limits=RolloutLimits(**limits), **settings), pool

    return make


class SaysInTurn:
    """A policy that writes, in each episode's n-th turn, the n-th of some texts; the last again after that."""

    def __init__(self, tokenizer: Any, *texts: str, end: str = "<|im_end|>") -> None:
        self.tokenizer, self.texts, self.end = tokenizer, texts, end
        self.batches: list[int] = []
        self.prompts: list[list[int]] = []
        self.header = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)

    async def generate(self, prompts: Any, sampling: SamplingParameters) -> list[Completion]:
        await anyio.lowlevel.checkpoint()
        self.batches.append(len(prompts))
        self.prompts.extend(list(prompt) for prompt in prompts)
        return [self.answer(list(prompt), sampling) for prompt in prompts]

    def answer(self, prompt: list[int], sampling: SamplingParameters) -> Completion:
        turn = self.tokenizer.decode(prompt).count("<|im_start|>assistant\n") - 1
        text = self.texts[min(turn, len(self.texts) - 1)] + self.end
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        finished = len(ids) <= sampling.max_new_tokens
        ids = ids[: sampling.max_new_tokens]
        return Completion(ids, [-0.5] * len(ids), finished)


def call(name: str, **arguments: Any) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {json.dumps(arguments)}}}</tool_call>'


@pytest.fixture
def say(tokenizer: Any) -> Callable[..., SaysInTurn]:
    return lambda *texts, **settings: SaysInTurn(tokenizer, *texts, **settings)


@pytest.fixture
def tool_call() -> Callable[..., str]:
    return call


@pytest.fixture
def tasks() -> Callable[..., list[Task]]:
    """So many tasks, each its own seed."""
    return lambda count, **fields: [
        Task(prompt=[{"role": "user", "content": "Play."}], reset={"seed": index}, index=index, **fields)
        for index in range(count)
    ]


@pytest.fixture
def tools() -> list[Tool]:
    return list(TOOLS)
