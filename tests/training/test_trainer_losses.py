"""Every loss of TRL, over real episodes: finite, and blind to each token that the model did not write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from openenv_trl.training import EnvironmentRollout

from .scripted import LIMITS, MakeTrainer, Replies, by_the_cards, rows

LOSSES = ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo")


class Batch:
    """A trainer with the batch of its first step, of whose episodes one failed and others have environment tokens."""

    def __init__(self, trainer: GRPOTrainer, values: dict[str, Any]) -> None:
        self.trainer = trainer
        self.values = values
        self.trained = (values["tool_mask"] * values["completion_mask"]).bool()

    def loss_and_gradient(self, **changes: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss, and its gradient with respect to the log-prob of each token of the completions."""
        trainer, kept = self.trainer, list[torch.Tensor]()
        original = trainer._get_per_token_logps_and_entropies

        def remember(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            result[0].retain_grad()
            kept.append(result[0])
            return result

        trainer._get_per_token_logps_and_entropies = remember  # type: ignore[method-assign]
        try:
            trainer.model.train()
            trainer.model.zero_grad()
            loss = trainer.compute_loss(trainer.model, {**self.values, **changes})
            loss.backward()
        finally:
            trainer._get_per_token_logps_and_entropies = original  # type: ignore[method-assign]
        gradient = kept[0].grad
        assert gradient is not None
        return loss.detach(), gradient


@pytest.fixture(scope="module")
def scored(module_trainer: MakeTrainer, blackjack_url: str) -> Iterator[Batch]:
    batches: list[dict[str, Any]] = []
    with EnvironmentRollout(blackjack_url, limits=LIMITS, shared_randomness="none") as rollout:
        trainer = module_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=1)
        Replies(trainer, by_the_cards)
        score = trainer._generate_and_score_completions
        trainer._generate_and_score_completions = lambda inputs: batches.append(score(inputs)) or batches[-1]  # type: ignore
        trainer.train()
        values = dict(batches[0])
        values["advantages"] = torch.tensor([1.0, -1.0] * 4)
        values["old_per_token_logps"] = torch.full(values["completion_ids"].shape, -2.0)
        yield Batch(trainer, values)


@pytest.fixture
def with_loss(scored: Batch) -> Iterator[Callable[[str, str], Batch]]:
    def use(loss_type: str, level: str = "token") -> Batch:
        scored.trainer.loss_type = loss_type
        scored.trainer.importance_sampling_level = level
        return scored

    yield use
    use("dapo")


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("loss_type", LOSSES)
def test_the_gradient_is_zero_on_every_token_that_the_model_did_not_write(
    with_loss: Callable[[str, str], Batch], loss_type: str, level: str
) -> None:
    batch = with_loss(loss_type, level)
    loss, gradient = batch.loss_and_gradient()
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()
    assert (~batch.trained).any(), "there are tokens of environments in the batch"
    assert gradient[~batch.trained].abs().max() == 0
    assert gradient[batch.trained].abs().max() > 0


@pytest.mark.parametrize("loss_type", LOSSES)
def test_a_batch_of_which_nothing_is_sound_has_a_zero_loss_and_gradient(
    with_loss: Callable[[str, str], Batch], loss_type: str
) -> None:
    batch = with_loss(loss_type, "token")
    nothing = torch.zeros_like(batch.values["tool_mask"])
    loss, gradient = batch.loss_and_gradient(tool_mask=nothing, num_items_in_batch=torch.tensor(0))
    assert loss == 0
    assert gradient.abs().max() == 0


def test_masked_tokens_are_still_seen_by_those_after_them(scored: Batch) -> None:
    """The mask is of the loss alone: the model reads what the environment wrote."""
    values, trainer = scored.values, scored.trainer
    row = int((~scored.trained & values["completion_mask"].bool()).sum(1).argmax())
    place = int((~scored.trained & values["completion_mask"].bool())[row].nonzero()[0])
    trainer.model.eval()

    def logps(completion_ids: torch.Tensor) -> torch.Tensor:
        ids = torch.cat([values["prompt_ids"], completion_ids], 1)
        mask = torch.cat([values["prompt_mask"], values["completion_mask"]], 1)
        with torch.no_grad():
            return trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, completion_ids.size(1))[0][row]

    other = values["completion_ids"].clone()
    other[row, place] = (other[row, place] + 1) % 40
    before, after = logps(values["completion_ids"]), logps(other)
    assert torch.equal(before[:place], after[:place])
    assert not torch.allclose(before[place + 1 :], after[place + 1 :])
