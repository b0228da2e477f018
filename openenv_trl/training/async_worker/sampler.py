"""The policy as the worker's episodes see it: stamped with the weights' version, patient while its server is away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import anyio

from openenv_trl.errors import ConfigurationError, PolicyError
from openenv_trl.rollout import Completion, Policy, SamplingParameters
from openenv_trl.rollout.policy import FailedCompletion
from openenv_trl.training.async_worker.outage import GiveBack, GiveUp, OutageWatch


class VersionedPolicy:
    """Wraps a policy.

    A completion is stamped with the version that was current when it was asked for: the oldest that can have sampled
    any of its tokens, also where the server exchanged its weights half-way.

    Args:
        policy: Who samples.
        version: Tells the current version.
        outage: Decides about failures.
        on_success: Called when something was sampled.
        on_failure: Called with what went wrong.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        version: Callable[[], int],
        outage: OutageWatch,
        on_success: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self.concurrent = bool(getattr(policy, "concurrent", False))
        self._policy = policy
        self._version = version
        self._outage = outage
        self._on_success = on_success
        self._on_failure = on_failure

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters
    ) -> list[Completion | FailedCompletion]:
        """Sample one completion for each prompt, trying again for as long as the server is away.

        Raises:
            PolicyError: Nothing has been answered for longer than an outage may last.
            ConfigurationError: The policy says that a setting is wrong.
        """
        began = anyio.current_time()
        results: dict[int, Completion | FailedCompletion] = {}
        waiting = list(range(len(prompts)))
        while waiting:
            version = self._version()
            limits = sampling.row_limits
            rows = replace(sampling, row_limits=None if limits is None else tuple(limits[i] for i in waiting))
            answers = await self._ask([prompts[i] for i in waiting], rows)
            again: list[int] = []
            problem, delay_s = "", 0.0
            for index, answer in zip(waiting, answers, strict=True):
                if isinstance(answer, Completion):
                    self._outage.succeeded(anyio.current_time())
                    self._on_success()
                    results[index] = replace(answer, version=version)
                    continue
                decision = self._outage.failed(began, anyio.current_time()) if answer.retryable else GiveBack()
                if isinstance(decision, GiveBack):
                    results[index] = answer
                    continue
                self._on_failure(answer.error)
                if isinstance(decision, GiveUp):
                    raise PolicyError(
                        f"The inference server has answered nothing for {decision.lasted_s:.0f} s. The last failure: "
                        f"{answer.error}. Start it again, or give it longer with max_outage_s.",
                        phase="generate",
                    )
                problem, delay_s = answer.error, max(delay_s, decision.delay_s)
                again.append(index)
            waiting = again
            if problem:
                await anyio.sleep(delay_s)
        return [results[index] for index in range(len(prompts))]

    async def _ask(
        self, prompts: list[Sequence[int]], sampling: SamplingParameters
    ) -> Sequence[Completion | FailedCompletion]:
        try:
            answers = await self._policy.generate(prompts, sampling)
        except ConfigurationError:
            raise
        except Exception as error:  # boundary: the policy is anyone's code, and a server that is away may come back
            text = f"{type(error).__name__}: {error}"
            return [FailedCompletion(text)] * len(prompts)
        if len(answers) != len(prompts):
            raise PolicyError(
                f"The policy gave {len(answers)} completions for {len(prompts)} prompts; it must give one for each, in "
                "the prompts' order.",
                phase="generate",
            )
        return answers
