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
import contextlib
import math
import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel

from openenv_trl.errors import PolicyError
from openenv_trl.rollout import Completion, SamplingParameters
from openenv_trl.training.trainer_backends import Generate, trainer_generate, trainer_lockstep, trainer_stop_ids

__all__ = ["Generate", "GenerationBridge", "trainer_generate", "trainer_lockstep", "trainer_stop_ids"]


_LOOK_AGAIN_S = 2.0
"""Seconds after which it is looked whether the engine's loop still runs, where nothing is asked for."""


@dataclass
class _Request:
    prompts: list[list[int]]
    limits: list[int]
    done: anyio.Event
    completions: list[Completion] = field(default_factory=lambda: [])
    error: BaseException | None = None


class GenerationBridge:
    """A policy whose generation is done by the thread that calls `serve`.

    Args:
        generate: Called on the serving thread with a batch.
        stop_ids: Token ids that end a completion; a completion that ends otherwise was cut by its length.
        lockstep: None where each process generates by itself. Otherwise a function that is called by all processes at
            the same time with a number, and gives back the numbers of all. They are the prompts that each wants to
            generate for (-1: it has finished) and, unless all have finished, its longest limit of tokens.
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

        Only the limits of tokens are taken from ``sampling``: the trainer's own arguments decide temperature, top-p
        and the rest, since its loss assumes them.
        """
        limits = [sampling.limit_of(row) for row in range(len(prompts))]
        request = _Request([list(p) for p in prompts], limits, anyio.Event())
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
                while (request := self._next_request(portal)) is not None:
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
            request = self._next_request(portal)
            counts = lockstep(-1 if request is None else len(request.prompts))
            if all(count < 0 for count in counts):
                return
            # A shared server is asked by one process with its own limit, which must do for the others' rows too.
            width, longest = max(counts), max(lockstep(0 if request is None else max(request.limits)))
            if request is not None:
                self._filler = request.prompts[0]
                self._answer(request, portal, width=width, longest=longest)
            else:
                self._requests.put(None)  # this process has finished; it stays in step until the others have too
                self._generate([self._filler or [next(iter(self._stop_ids))]] * width, [1] * width, longest)

    def _next_request(self, portal: anyio.from_thread.BlockingPortal) -> _Request | None:
        """The engine's next batch; None when it has ended.

        Raises:
            PolicyError: Its event loop has died, and will ask for nothing any more.
        """
        while True:
            with contextlib.suppress(queue.Empty):
                return self._requests.get(timeout=_LOOK_AGAIN_S)
            try:
                portal.start_task_soon(anyio.lowlevel.checkpoint)
            except RuntimeError as error:
                with contextlib.suppress(queue.Empty):  # it ended in good order, just now
                    return self._requests.get_nowait()
                raise PolicyError(
                    "The rollout's event loop has ended: code that it called raised what ends a program."
                ) from error

    def _answer(
        self, request: _Request, portal: anyio.from_thread.BlockingPortal, *, width: int = 0, longest: int = 0
    ) -> None:
        fillers = width - len(request.prompts)
        prompts = request.prompts + [request.prompts[0]] * fillers
        try:
            ids, logprobs = self._generate(prompts, request.limits + [1] * fillers, longest or max(request.limits))
            request.completions = [
                Completion(
                    ids=list(ids[i]),
                    logprobs=None if logprobs is None else _if_known(logprobs[i]),
                    finished=bool(ids[i]) and ids[i][-1] in self._stop_ids,
                )
                for i in range(len(request.prompts))
            ]
        except (
            Exception
        ) as error:  # whatever generation raises belongs to the caller of the policy, on the other thread
            request.error = PolicyError(f"Generation failed: {type(error).__name__}: {error}", phase="generate")
            request.error.__cause__ = error
        # Where the loop has ended meanwhile nobody waits for it; the work's own end says why.
        with contextlib.suppress(RuntimeError):
            portal.call(request.done.set)


def _if_known(logprobs: Sequence[float | None] | None) -> list[float] | None:
    """Log-probs of a completion; None where the backend has not all of them."""
    if logprobs is None:
        return None
    known = [each for each in logprobs if each is not None and math.isfinite(each)]
    return known if len(known) == len(logprobs) else None
