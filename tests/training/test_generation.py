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
from openenv_trl.training.generation import GenerationBridge
from openenv_trl.training.trainer_backends import (
    TrainerBackend,
    trainer_backend,
    trainer_generate,
    trainer_lockstep,
    trainer_stop_ids,
)

STOP = 9


@pytest.fixture
def portal() -> Iterator[anyio.from_thread.BlockingPortal]:
    with anyio.from_thread.start_blocking_portal("asyncio") as portal:
        yield portal


def echo(prompts: list[list[int]], limits: list[int], longest: int) -> tuple[list[list[int]], None]:
    return [[*prompt, STOP][:limit] for prompt, limit in zip(prompts, limits, strict=True)], None


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
    def fail(prompts: list[list[int]], limits: list[int], longest: int) -> Any:
        raise ZeroDivisionError("no memory")

    bridge = GenerationBridge(fail, stop_ids=[STOP])
    work = portal.start_task_soon(ask, bridge, [[[1]]])
    bridge.serve(work, portal)
    with pytest.raises(PolicyError, match="no memory"):
        work.result()


def test_an_interrupt_of_the_serving_thread_cancels_the_episodes(portal: anyio.from_thread.BlockingPortal) -> None:
    def interrupt(prompts: list[list[int]], limits: list[int], longest: int) -> Any:
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
        def collective(prompts: list[list[int]], limits: list[int], longest: int) -> Any:
            meeting.wait()  # hangs, and then breaks, unless all ranks are here
            widths[rank].append(len(prompts))
            return echo(prompts, limits, longest)

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


def test_ranks_with_shorter_limits_do_not_cut_the_others() -> None:
    """A shared vLLM server is asked by one process, with that one's limit."""
    longest_of: list[list[int]] = [[], []]

    def run(rank: int, gather: Callable[[int], list[int]]) -> None:
        def collective(prompts: list[list[int]], limits: list[int], longest: int) -> Any:
            longest_of[rank].append(longest)
            return echo(prompts, limits, longest)

        async def ask_for(bridge: GenerationBridge, limits: list[int]) -> None:
            for limit in limits:
                await bridge.generate([[rank]], SamplingParameters(max_new_tokens=limit))

        bridge = GenerationBridge(collective, stop_ids=[STOP], lockstep=gather)
        with anyio.from_thread.start_blocking_portal("asyncio") as portal:
            work = portal.start_task_soon(ask_for, bridge, [[3, 2], [50]][rank])
            bridge.serve(work, portal)
            work.result()

    in_ranks(2, run)
    assert longest_of == [[50, 2], [50, 2]]


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


def fake_trainer(generate: Callable[..., Any] | None, **settings: Any) -> Any:
    """Something with a trainer's attributes, for what no installed backend can do here (vLLM)."""
    holder = SimpleNamespace(max_new_tokens=100, max_completion_length=100)
    model = SimpleNamespace(generate=lambda **_: None)
    fake = SimpleNamespace(
        use_vllm=False,
        generation_config=holder,
        vllm_generation=holder,
        model_wrapped=model,
        accelerator=SimpleNamespace(unwrap_model=lambda found: found),
    )
    vars(fake).update(settings)
    if generate is not None:
        fake._generate_single_turn = generate
    return fake


@pytest.mark.parametrize("vllm", [False, True])
def test_a_batchs_longest_limit_is_set_for_its_generation_only(vllm: bool) -> None:
    seen: list[int] = []

    def generate(prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: Any) -> Any:
        seen.append(holder.max_completion_length if vllm else holder.max_new_tokens)
        return [[1, 2, 3, STOP]] * len(prompt_ids), None

    fake = fake_trainer(generate, use_vllm=vllm)
    holder = fake.generation_config
    run = trainer_generate(fake)
    assert run([[1], [1]], [7, 2], 7)[0] == [[1, 2, 3, STOP], [1, 2]], "each row is cut to its own limit"
    run([[1]], [500], 500)
    assert seen == [7, 100]
    assert (holder.max_new_tokens, holder.max_completion_length) == (100, 100)
    assert "generate" in vars(fake.model_wrapped)


def test_a_row_with_a_missing_logprob_has_none(portal: anyio.from_thread.BlockingPortal) -> None:
    def generate(prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: Any) -> Any:
        return [[1, STOP], [2, STOP]], [[-0.5, -0.1], [-0.5, None]]

    bridge = GenerationBridge(trainer_generate(fake_trainer(generate, use_vllm=True)), stop_ids=[STOP])
    work = portal.start_task_soon(ask, bridge, [[[1], [2]]])
    bridge.serve(work, portal)
    assert [completion.logprobs for completion in work.result()[0]] == [[-0.5, -0.1], None]


def test_completions_that_are_too_few_are_a_policy_error_and_never_another_prompts() -> None:
    def generate(prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: Any) -> Any:
        return [[1, STOP]], None

    fake = fake_trainer(generate, use_transformers_continuous_batching=True)
    with pytest.raises(PolicyError, match=r"transformers_continuous_batching.* 1 completions for 2 prompts"):
        trainer_generate(fake)([[1], [2]], [5, 5], 5)


def _renamed(prompts: Any, images: Any, multimodal_fields: Any, num_generations: Any) -> Any: ...
def _swapped(images: Any, prompt_ids: Any, multimodal_fields: Any, num_generations: Any) -> Any: ...
def _needs_more(prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: Any, sampling: Any) -> Any: ...
def _known(
    prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: Any, has_tool_images: bool = False
) -> Any: ...
def _wrapper(*arguments: Any, **settings: Any) -> Any: ...


@pytest.mark.parametrize("method", [None, _renamed, _swapped, _needs_more])
def test_a_trainer_of_another_form_is_refused_with_what_to_install(method: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"trl>=1\.15,<1\.17 \(trl 1\.\d+"):
        trainer_generate(fake_trainer(method))


@pytest.mark.parametrize("method", [_known, _wrapper])
def test_a_trainer_of_the_known_form_is_taken(method: Any) -> None:
    trainer_generate(fake_trainer(method))


def test_a_trainer_without_the_known_limit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_completion_length"):
        trainer_generate(fake_trainer(_known, use_vllm=True, vllm_generation=SimpleNamespace()))


@pytest.fixture(scope="module")
def real_trainer(tiny_policy_path: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """TRL's own, on transformers, whose padding token is the end token."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(tiny_policy_path)
    tokenizer.pad_token = tokenizer.eos_token
    return GRPOTrainer(
        model=str(tiny_policy_path),
        processing_class=tokenizer,
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": "Play."}]]}),
        args=GRPOConfig(
            output_dir=str(tmp_path_factory.mktemp("trainer")),
            per_device_train_batch_size=2,
            num_generations=2,
            max_completion_length=64,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
        ),
    )


def test_the_real_trainer_stops_each_row_at_its_own_limit(real_trainer: Any) -> None:
    lengths: list[int] = []
    hook = real_trainer.model.register_forward_hook(lambda *_: lengths.append(1))
    stop = trainer_stop_ids(real_trainer)
    limits = [1, 9, 4, 2]
    try:
        ids, logprobs = trainer_generate(real_trainer)([[5, 6, 7], [5], [6, 7], [8]] * 4, limits * 4, 9)
    finally:
        hook.remove()
    assert logprobs is None
    for row, limit in zip(ids, limits * 4, strict=True):
        assert 1 <= len(row) <= limit
        assert row[-1] in stop or len(row) == limit, "padding, which is the end token here, is no end"
        assert not set(row[:-1]) & set(stop)
    assert len(lengths) <= max(limits)
    assert "generate" not in vars(real_trainer.model)
    assert real_trainer.generation_config.max_new_tokens == 64


def test_the_real_trainers_backend_is_known(real_trainer: Any) -> None:
    assert trainer_backend(real_trainer) is TrainerBackend.TRANSFORMERS
    assert not trainer_backend(real_trainer).gives_logprobs
    assert trainer_backend(fake_trainer(_known, use_vllm=True, vllm_mode="server")) is TrainerBackend.VLLM_SERVER
