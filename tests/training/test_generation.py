"""The bridge hands each completion to its asker, and ranks in step never leave one waiting in a collective call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import anyio.from_thread
import pytest

from openenv_trl.errors import ConfigurationError, PolicyError
from openenv_trl.rollout import Completion, SamplingParameters
from openenv_trl.training.generation import GenerationBridge, trainer_generate, trainer_lockstep

STOP = 9


@pytest.fixture
def portal() -> Iterator[anyio.from_thread.BlockingPortal]:
    with anyio.from_thread.start_blocking_portal("asyncio") as portal:
        yield portal


def echo(prompts: list[list[int]], max_new_tokens: int | None) -> tuple[list[list[int]], None]:
    return [[*prompt, STOP][: max_new_tokens or None] for prompt in prompts], None


async def ask(bridge: GenerationBridge, batches: list[list[list[int]]]) -> list[list[Completion]]:
    return [await bridge.generate(batch, SamplingParameters(max_new_tokens=3)) for batch in batches]


def test_completions_come_back_in_the_order_of_their_prompts(portal: anyio.from_thread.BlockingPortal) -> None:
    bridge = GenerationBridge(echo, stop_ids=[STOP])
    work = portal.start_task_soon(ask, bridge, [[[1], [2]], [[3, 3, 3]]])
    bridge.serve(work, portal)
    first, second = work.result()
    assert [list(c.ids) for c in first] == [[1, STOP], [2, STOP]]
    assert [c.finished for c in first] == [True, True]
    assert [(list(c.ids), c.finished) for c in second] == [([3, 3, 3], False)]


def test_a_generation_that_raises_is_raised_where_it_was_asked_for(portal: anyio.from_thread.BlockingPortal) -> None:
    def fail(prompts: list[list[int]], max_new_tokens: int | None) -> Any:
        raise ZeroDivisionError("no memory")

    bridge = GenerationBridge(fail, stop_ids=[STOP])
    work = portal.start_task_soon(ask, bridge, [[[1]]])
    bridge.serve(work, portal)
    with pytest.raises(PolicyError, match="no memory"):
        work.result()


def test_an_interrupt_of_the_serving_thread_cancels_the_episodes(portal: anyio.from_thread.BlockingPortal) -> None:
    def interrupt(prompts: list[list[int]], max_new_tokens: int | None) -> Any:
        raise KeyboardInterrupt

    bridge = GenerationBridge(interrupt, stop_ids=[STOP])
    work = portal.start_task_soon(ask, bridge, [[[1]]])
    with pytest.raises(KeyboardInterrupt):
        bridge.serve(work, portal)
    assert work.cancelled()


def in_ranks(count: int, run: Callable[[int, Callable[[int], list[int]]], None]) -> None:
    """Run ``run(rank, gather)`` on a thread for each rank, where ``gather`` is a real meeting of all of them."""
    barrier = threading.Barrier(count, timeout=20)
    values = [0] * count
    failures: list[BaseException] = []

    def gather_for(rank: int) -> Callable[[int], list[int]]:
        def gather(value: int) -> list[int]:
            values[rank] = value
            barrier.wait()
            result = list(values)
            barrier.wait()
            return result

        return gather

    def body(rank: int) -> None:
        try:
            run(rank, gather_for(rank))
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures, failures


def test_ranks_that_finish_early_join_every_collective_call() -> None:
    turns = [1, 4, 0]  # batches that each rank needs
    meeting = threading.Barrier(3, timeout=20)
    widths: list[list[int]] = [[], [], []]
    results: list[Any] = [None] * 3

    def run(rank: int, gather: Callable[[int], list[int]]) -> None:
        def collective(prompts: list[list[int]], max_new_tokens: int | None) -> Any:
            meeting.wait()  # hangs, and then breaks, unless all ranks are here
            widths[rank].append(len(prompts))
            return echo(prompts, max_new_tokens)

        bridge = GenerationBridge(collective, stop_ids=[STOP], lockstep=gather)
        with anyio.from_thread.start_blocking_portal("asyncio") as portal:
            work = portal.start_task_soon(ask, bridge, [[[rank]] * (rank + 1)] * turns[rank])
            bridge.serve(work, portal)
            results[rank] = work.result()

    in_ranks(3, run)
    assert widths[0] == widths[1] == widths[2], "a shared vLLM server slices the gathered batch evenly"
    assert len(widths[0]) == max(turns)
    for rank in range(3):
        assert [[list(c.ids) for c in batch] for batch in results[rank]] == [
            [[rank, STOP]] * (rank + 1) for _ in range(turns[rank])
        ]


def trainer(**args: Any) -> Any:
    accelerator = SimpleNamespace(
        num_processes=args.pop("num_processes", 2),
        state=SimpleNamespace(deepspeed_plugin=args.pop("deepspeed_plugin", None)),
    )
    fsdp = args.pop("is_fsdp_enabled", False)
    return SimpleNamespace(accelerator=accelerator, args=SimpleNamespace(**args), is_fsdp_enabled=fsdp)


@pytest.mark.parametrize(
    ("settings", "collective"),
    [
        ({"use_vllm": False}, False),
        ({"use_vllm": True, "vllm_mode": "server"}, True),
        ({"use_vllm": True, "vllm_mode": "server", "num_processes": 1}, False),
        ({"use_vllm": True, "vllm_mode": "colocate", "vllm_tensor_parallel_size": 1}, False),
        ({"use_vllm": True, "vllm_mode": "colocate", "vllm_tensor_parallel_size": 2}, True),
        ({"use_vllm": False, "deepspeed_plugin": SimpleNamespace(zero_stage=3)}, True),
        ({"use_vllm": False, "deepspeed_plugin": SimpleNamespace(zero_stage=2)}, False),
        ({"use_vllm": False, "is_fsdp_enabled": True}, True),
    ],
)
def test_ranks_are_kept_in_step_exactly_where_generation_is_collective(
    settings: dict[str, Any], collective: bool
) -> None:
    assert (trainer_lockstep(trainer(**settings)) is not None) is collective


@pytest.mark.parametrize("vllm", [False, True])
def test_a_turns_limit_of_tokens_is_set_for_its_generation_only(vllm: bool) -> None:
    seen: list[int] = []
    holder = SimpleNamespace(max_new_tokens=100, max_completion_length=100)
    fake = SimpleNamespace(use_vllm=vllm, generation_config=holder, vllm_generation=holder)

    def generate(prompts: Any, images: Any, fields: Any, count: int) -> Any:
        seen.append(holder.max_completion_length if vllm else holder.max_new_tokens)
        return [[STOP]], None

    fake._generate_single_turn = generate
    run = trainer_generate(fake)
    for limit in (7, None, 500):
        run([[1]], limit)
    assert seen == [7, 100, 100]
    assert (holder.max_new_tokens, holder.max_completion_length) == (100, 100)


def test_a_trainer_that_cannot_generate_is_refused_with_what_to_install() -> None:
    with pytest.raises(ConfigurationError, match=r"trl>=1\.15"):
        trainer_generate(SimpleNamespace())
