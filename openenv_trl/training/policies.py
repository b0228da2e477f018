"""A policy over a transformers model in this process, for evaluation, comparison and the warm start's checks."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from openenv_trl.rollout import Completion, SamplingParameters
from openenv_trl.rollout.policies.seeds import PromptSeeds


class TransformersPolicy:
    """Generates with ``model.generate``, in a worker thread, so that the event loop goes on serving sockets.

    Every row stops at its own limit, and its log-probs are those of the distribution that was sampled from. Settings
    of the model's own ``generation_config`` other than its end tokens are not used.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer.
        with_logprobs: Whether completions carry the log-probs of their tokens.
        stop_ids: More token ids that end a completion, beside the model's own end tokens.
        seed: Makes sampling repeatable, whatever is batched with what: each row has random numbers made of this, its
            prompt, and how often that was asked before. None draws from torch's global generator.

    Example:
        >>> policy = TransformersPolicy(model, tokenizer, with_logprobs=True, seed=0)
        >>> report = evaluate("my model", policy, tokenizer, urls, tasks, sampling=SamplingParameters(temperature=0.7))
    """

    concurrent: ClassVar[bool] = False
    token_exact: ClassVar[bool] = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        with_logprobs: bool = False,
        stop_ids: Iterable[int] = (),
        seed: int | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._with_logprobs = with_logprobs
        self._seeds = PromptSeeds(seed)
        stop = model.generation_config.eos_token_id
        ids = [tokenizer.eos_token_id] if stop is None else stop if isinstance(stop, list) else [stop]
        self._stop_ids = list(dict.fromkeys([*(int(i) for i in ids), *stop_ids]))
        self._pad_id = int(self._stop_ids[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id)

    async def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters) -> list[Completion]:
        """Complete a batch of prompts. See `openenv_trl.rollout.Policy`."""
        import anyio.to_thread

        return await anyio.to_thread.run_sync(self.generate_now, prompts, sampling)

    def generate_now(self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters) -> list[Completion]:
        """Complete a batch of prompts on the calling thread."""
        import torch

        from openenv_trl.training.row_sampler import RowSampler

        width = max(len(prompt) for prompt in prompts)
        ids = torch.full((len(prompts), width), self._pad_id)
        mask = torch.zeros((len(prompts), width), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(list(prompt))
            mask[row, width - len(prompt) :] = 1
        limits = [sampling.limit_of(row) for row in range(len(prompts))]
        seeds = [self._seeds.next(prompt) for prompt in prompts]
        sampler = RowSampler(width, limits, sampling, seeds, with_logprobs=self._with_logprobs)
        device = self.model.device
        with torch.inference_mode():
            sequences = self.model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                max_new_tokens=max(limits),
                pad_token_id=self._pad_id,
                eos_token_id=self._stop_ids,
                logits_processor=[sampler],
                stopping_criteria=[sampler.stop],
                # The sampler has chosen by then, so that nothing else may change what is chosen.
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
                repetition_penalty=1.0,
            )
        rows: list[list[int]] = sequences[:, width:].tolist()
        logprobs = sampler.logprobs if self._with_logprobs else None
        completions: list[Completion] = []
        for index, (row, limit) in enumerate(zip(rows, limits, strict=True)):
            end = next((at for at, token in enumerate(row[:limit]) if token in self._stop_ids), None)
            length = min(limit, len(row)) if end is None else end + 1
            given = None if logprobs is None else logprobs[index][:length]
            completions.append(Completion(row[:length], given, finished=end is not None))
        return completions
