"""The sampler's log-probs reach the trainer's importance sampling correction as they were, token by token.

No vLLM runs here: the trainer is set to use one, and in its place stands a sampler that draws from the trainer's own
model and says how likely each token was. A correction of exactly 1 then shows that nothing was lost on the way.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from openenv_trl.training import EnvironmentRollout

from .scripted import LIMITS, MakeTrainer, call, rows


def sample_as_vllm(trainer: GRPOTrainer, offset: float) -> None:
    """Let the trainer generate with a vLLM that is its own model; its log-probs are wrong by ``offset``.

    Three messages of four are calls of a tool, so that there are episodes of several turns; the rest is sampled.
    """
    tokenizer: Any = trainer.processing_class
    asked = 0

    def generate(prompts: list[list[int]], **_: Any) -> Any:
        nonlocal asked
        completions: list[list[int]] = []
        for prompt in prompts:
            asked += 1
            completions.append(tokenizer.encode(call("hit")) if asked % 4 else sample(prompt))
        logps = [logps_of(p, c) for p, c in zip(prompts, completions, strict=True)]
        return prompts, completions, [[[lp + offset] for lp in row] for row in logps], None

    def sample(prompt: list[int]) -> list[int]:
        with torch.no_grad():
            output = trainer.model.generate(
                input_ids=torch.tensor([prompt]), do_sample=True, top_k=0, max_new_tokens=12
            )
        return output[0, len(prompt) :].tolist()

    def logps_of(prompt: list[int], completion: list[int]) -> list[float]:
        ids = torch.tensor([prompt + completion])
        with torch.no_grad():
            logits = trainer.model(input_ids=ids).logits[0, len(prompt) - 1 : -1]
        return logits.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None])[:, 0].tolist()

    trainer.use_vllm = trainer.args.use_vllm = True
    trainer.args.vllm_mode = "colocate"
    trainer._last_loaded_step = -1
    trainer.vllm_generation = SimpleNamespace(
        generate=generate, sync_weights=lambda: None, max_completion_length=trainer.max_completion_length
    )


@pytest.mark.parametrize(("offset", "exact"), [(0.0, True), (-0.05, False)], ids=["the sampler's own", "wrong ones"])
@pytest.mark.parametrize("mode", ["sequence_mask", "token_truncate"])
def test_the_samplers_log_probs_need_no_correction_and_wrong_ones_do(
    make_trainer: MakeTrainer, blackjack_url: str, offset: float, exact: bool, mode: str
) -> None:
    with EnvironmentRollout(blackjack_url, limits=LIMITS, shared_randomness="none") as rollout:
        trainer = make_trainer(
            rollout, rollout.prepare_dataset(rows()), max_steps=1, vllm_importance_sampling_mode=mode
        )
        sample_as_vllm(trainer, offset)
        trainer.train()
        assert rollout.metrics["environment_tokens"] > 0, "some episodes have several turns"
    logged = trainer.state.log_history[0]
    ratios = [logged[f"sampling/importance_sampling_ratio/{which}"] for which in ("min", "mean", "max")]
    if exact:
        assert ratios == pytest.approx([1.0] * 3, abs=1e-4)
        assert logged["sampling/sampling_logp_difference/max"] < 1e-4
    else:
        assert ratios != pytest.approx([1.0] * 3, abs=1e-2)
        assert logged["sampling/sampling_logp_difference/mean"] == pytest.approx(0.05, abs=1e-4)


def test_a_batch_without_a_sound_episode_is_skipped_under_vllm_too(make_trainer: MakeTrainer, unruly_url: str) -> None:
    with EnvironmentRollout(unruly_url, limits=LIMITS) as rollout:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows(way="reset raises")), max_steps=1)
        sample_as_vllm(trainer, 0.0)
        trainer.train()
    assert trainer.state.log_history[0]["loss"] == 0.0
