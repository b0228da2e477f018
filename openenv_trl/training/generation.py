"""Generation through the trainer's own model, for an engine that runs on another thread.

The engine's event loop lives in a background thread, so that sockets are served while the model generates. A trainer's
generation has to run on the main thread, and in some set-ups all processes have to call it together.
`GenerationBridge` joins the two: on the engine's side it is a policy; on the main thread `serve` runs the requests,
alone or in lockstep with the other ranks.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

import concurrent.futures
import queue
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.from_thread

from openenv_trl.errors import ConfigurationError, PolicyError
from openenv_trl.rollout import Completion, SamplingParameters

Generate = Callable[[list[list[int]], "int | None"], tuple[list[list[int]], "list[list[float]] | None"]]
"""Prompts as token ids and a limit of new tokens, to completion ids and log-probs (None if the backend has none)."""


@dataclass
class _Request:
    prompts: list[list[int]]
    max_new_tokens: int | None
    done: anyio.Event
    completions: list[Completion] = field(default_factory=lambda: [])
    error: BaseException | None = None


class GenerationBridge:
    """A policy whose generation is done by the thread that calls `serve`.

    Args:
        generate: Called on the serving thread with a batch.
        stop_ids: Token ids that end a completion; a completion that ends otherwise was cut by its length.
        lockstep: None where each process generates by itself. Otherwise a function that is called by all processes at
            the same time, with the number of prompts that this one wants to generate for (-1: it has finished), and
            gives back the numbers of all.
    """

    def __init__(
        self,
        generate: Generate,
        *,
        stop_ids: Sequence[int],
        lockstep: Callable[[int], list[int]] | None = None,
    ) -> None:
        self._generate = generate
        self._stop_ids = frozenset(stop_ids)
        self._lockstep = lockstep
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._filler: list[int] = []

    async def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters) -> list[Completion]:
        """Complete a batch of prompts: see `openenv_trl.rollout.Policy`.

        Only ``max_new_tokens`` is taken from ``sampling``:
        the trainer's own arguments decide temperature, top-p and the rest, since its loss assumes them.
        """
        request = _Request([list(p) for p in prompts], sampling.max_new_tokens, anyio.Event())
        self._requests.put(request)
        await request.done.wait()
        if request.error is not None:
            raise request.error
        return request.completions

    def serve(self, work: concurrent.futures.Future[Any], portal: anyio.from_thread.BlockingPortal) -> None:
        """Run requests on this thread until ``work``, which makes them, has ended.

        Args:
            work: The engine's run on the portal's loop. Cancelled if this thread is interrupted.
            portal: The portal of the loop that the requests come from.
        """
        work.add_done_callback(lambda _: self._requests.put(None))
        try:
            if self._lockstep is None:
                while (request := self._requests.get()) is not None:
                    self._answer(request, portal)
            else:
                self._serve_in_lockstep(self._lockstep, portal)
        except BaseException:
            work.cancel()
            raise

    def _serve_in_lockstep(
        self, lockstep: Callable[[int], list[int]], portal: anyio.from_thread.BlockingPortal
    ) -> None:
        """Every process calls the model as often as the neediest, each time with as many prompts as the fullest."""
        while True:
            request = self._requests.get()
            counts = lockstep(-1 if request is None else len(request.prompts))
            if all(count < 0 for count in counts):
                return
            width = max(counts)
            if request is not None:
                self._filler = request.prompts[0]
                self._answer(request, portal, width=width)
            else:
                self._requests.put(None)  # this process has finished; it stays in step until the others have too
                self._generate([self._filler or [next(iter(self._stop_ids))]] * width, 1)

    def _answer(self, request: _Request, portal: anyio.from_thread.BlockingPortal, *, width: int = 0) -> None:
        prompts = request.prompts + [request.prompts[0]] * (width - len(request.prompts))
        try:
            ids, logprobs = self._generate(prompts, request.max_new_tokens)
            request.completions = [
                Completion(
                    ids=list(ids[i]),
                    logprobs=None if logprobs is None else list(logprobs[i]),
                    finished=bool(ids[i]) and ids[i][-1] in self._stop_ids,
                )
                for i in range(len(request.prompts))
            ]
        except (
            Exception
        ) as error:  # whatever generation raises belongs to the caller of the policy, on the other thread
            request.error = PolicyError(f"Generation failed: {type(error).__name__}: {error}", phase="generate")
            request.error.__cause__ = error
        portal.call(request.done.set)


def trainer_generate(trainer: Any) -> Generate:
    """Generation by a ``GRPOTrainer``: transformers, continuous batching, or vLLM, whichever the trainer uses.

    Source: ``GRPOTrainer._generate_single_turn`` of TRL 1.15 and 1.16, which serves all its backends.

    Raises:
        ConfigurationError: The trainer has no such method.
    """
    if not hasattr(trainer, "_generate_single_turn"):
        raise ConfigurationError(
            f"{type(trainer).__name__} cannot generate for a rollout: it has no _generate_single_turn. "
            "Install trl>=1.15,<1.17 and use its GRPOTrainer."
        )

    def generate(
        prompts: list[list[int]], max_new_tokens: int | None
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        with _new_tokens_limited(trainer, max_new_tokens):
            return trainer._generate_single_turn(prompts, None, {}, 1)

    return generate


def trainer_stop_ids(trainer: Any) -> list[int]:
    """The token ids at which the trainer's generation stops."""
    ids = getattr(trainer, "eos_token_ids", None)
    if ids is not None:
        return [int(i) for i in ids]
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    return [int(tokenizer.eos_token_id)]


def trainer_lockstep(trainer: Any) -> Callable[[int], list[int]] | None:
    """The gathering that keeps ranks in step, where generation is a collective call; None where it is not.

    It is one where several processes share a vLLM server or a tensor-parallel vLLM, and where the model's weights are
    sharded over the processes (DeepSpeed ZeRO-3, FSDP).
    """
    accelerator = trainer.accelerator
    if accelerator.num_processes == 1:
        return None
    args = trainer.args
    if getattr(args, "use_vllm", False):
        collective = args.vllm_mode == "server" or getattr(args, "vllm_tensor_parallel_size", 1) > 1
    else:
        plugin = getattr(accelerator.state, "deepspeed_plugin", None)
        collective = (plugin is not None and plugin.zero_stage == 3) or bool(getattr(trainer, "is_fsdp_enabled", False))
    if not collective:
        return None

    def gather(count: int) -> list[int]:
        from accelerate.utils import gather_object

        return [int(value) for value in gather_object([count])]

    return gather


@contextmanager
def _new_tokens_limited(trainer: Any, max_new_tokens: int | None) -> Generator[None]:
    """Let one generation make at most so many tokens: the trainer's own limit covers a whole episode."""
    if getattr(trainer, "use_vllm", False):
        holder, name = trainer.vllm_generation, "max_completion_length"
    else:
        holder, name = trainer.generation_config, "max_new_tokens"
    before = getattr(holder, name)
    if max_new_tokens is not None:
        setattr(holder, name, max_new_tokens if before is None else min(before, max_new_tokens))
    try:
        yield
    finally:
        setattr(holder, name, before)
