"""A policy over a transformers model in this process, for evaluation and for the warm start's checks."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openenv_trl.rollout import Completion, SamplingParameters


class TransformersPolicy:
    """Generates with ``model.generate``, in a worker thread, so that the event loop goes on serving sockets.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer, with a padding token.
        with_logprobs: Whether completions carry the log-probs of their tokens, which costs a copy of the scores.
    """

    def __init__(self, model: Any, tokenizer: Any, *, with_logprobs: bool = False) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._with_logprobs = with_logprobs
        stop = model.generation_config.eos_token_id
        ids = [tokenizer.eos_token_id] if stop is None else stop if isinstance(stop, list) else [stop]
        self._stop_ids: list[int] = [int(i) for i in ids]
        self._pad_id = int(self._stop_ids[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id)

    async def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters) -> list[Completion]:
        """Complete a batch of prompts. See `openenv_trl.rollout.Policy`."""
        import anyio.to_thread

        return await anyio.to_thread.run_sync(self.generate_now, prompts, sampling)

    def generate_now(self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters) -> list[Completion]:
        """Complete a batch of prompts on the calling thread."""
        import torch

        width = max(len(prompt) for prompt in prompts)
        ids = torch.full((len(prompts), width), self._pad_id)
        mask = torch.zeros((len(prompts), width), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(list(prompt))
            mask[row, width - len(prompt) :] = 1
        device = self.model.device
        greedy = sampling.greedy
        chosen = (
            {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
            if greedy
            else {
                "do_sample": True,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
            }
        )
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                max_new_tokens=sampling.max_new_tokens,
                pad_token_id=self._pad_id,
                eos_token_id=self._stop_ids,
                return_dict_in_generate=True,
                output_logits=self._with_logprobs,
                **chosen,
            )
        new = output.sequences[:, width:].cpu()
        stops = torch.isin(new, torch.tensor(self._stop_ids))
        lengths = torch.where(stops.any(1), stops.int().argmax(1) + 1, new.shape[1]).tolist()
        logprobs = None
        if self._with_logprobs:
            logits = torch.stack(output.logits, dim=1).float() / (1.0 if greedy else sampling.temperature)
            logprobs = logits.log_softmax(-1).gather(-1, new.to(logits.device).unsqueeze(-1)).squeeze(-1).cpu()
        finished = stops.any(1).tolist()
        rows = new.tolist()
        return [
            Completion(
                ids=rows[i][:length],
                logprobs=None if logprobs is None else logprobs[i, :length].tolist(),
                finished=finished[i],
            )
            for i, length in enumerate(lengths)
        ]
