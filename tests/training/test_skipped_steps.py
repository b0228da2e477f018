"""A batch is trained on, skipped or the last, by its counts alone; and a skipped step moves nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import EndReason, Task, Trajectory
from openenv_trl.training.batch_tally import BatchTally
from openenv_trl.training.skipped_step_callback import SkippedStepCallback
from openenv_trl.training.skipped_steps import SkippedSteps, Verdict


def tally(sound: int, **failures: int) -> BatchTally:
    return BatchTally(sound + sum(failures.values()), failures, dict.fromkeys(failures, "why"))


TALLIES = st.builds(
    lambda sound, lost, late: tally(sound, **{k: v for k, v in (("lost", lost), ("late", late)) if v}),
    *(st.integers(min_value=0, max_value=4) for _ in range(3)),
)


def trajectory(reason: EndReason, error: str | None = None) -> Trajectory:
    return Trajectory(Task([{"role": "user", "content": "x"}]), [1], [2], [1], None, [], reason, error)


@given(batches=st.lists(TALLIES), limit=st.integers(min_value=0, max_value=3), fraction=st.sampled_from([0.0, 0.5, 1]))
def test_what_is_sound_enough_is_trained_on_and_no_more_in_a_row_are_skipped_than_allowed(
    batches: list[BatchTally], limit: int, fraction: float
) -> None:
    skipped = SkippedSteps(max_failed_fraction=fraction, max_skipped_steps=limit)
    in_a_row = 0
    for batch in batches:
        verdict = skipped.decide(batch).verdict
        usable = not batch.failed or (batch.sound > 0 and batch.failed / batch.episodes <= fraction)
        assert (verdict is Verdict.TRAIN) is usable
        in_a_row = 0 if usable else in_a_row + 1
        assert (verdict is Verdict.STOP) is (in_a_row > limit)
        if verdict is Verdict.STOP:
            return


def test_a_part_that_failed_is_told_once_with_its_reasons() -> None:
    decision = SkippedSteps(max_failed_fraction=1.0, max_skipped_steps=0).decide(tally(5, step_timeout=1, lost=2))
    assert decision.verdict is Verdict.TRAIN
    assert "3 of 8" in decision.message
    assert decision.message.index("2 lost (why)") < decision.message.index("1 step_timeout (why)")
    assert SkippedSteps(max_failed_fraction=1.0, max_skipped_steps=0).decide(tally(5)).message == ""


def test_a_limit_that_is_passed_is_named() -> None:
    decision = SkippedSteps(max_failed_fraction=0.25, max_skipped_steps=1).decide(tally(5, lost=3))
    assert decision.verdict is Verdict.SKIP
    assert "max_failed_fraction=0.25" in decision.message


@given(parts=st.lists(TALLIES, min_size=1, max_size=4))
def test_ranks_together_count_what_each_counts(parts: list[BatchTally]) -> None:
    whole = BatchTally.merged(parts)
    assert (whole.episodes, whole.failed) == (sum(p.episodes for p in parts), sum(p.failed for p in parts))
    assert set(whole.examples) == set(whole.failures)


def test_what_was_played_beyond_need_is_neither_sound_nor_failed() -> None:
    played = [
        trajectory(EndReason.DONE),
        trajectory(EndReason.MAX_TURNS),
        trajectory(EndReason.SURPLUS),
        trajectory(EndReason.SESSION_LOST, "step: gone"),
    ]
    found = BatchTally.of(played)
    assert (found.episodes, found.sound, found.failures) == (3, 2, {"session_lost": 1})
    assert found.reasons() == "1 session_lost (step: gone)"


@pytest.mark.parametrize("skipping", [False, True])
def test_a_skipped_step_moves_no_weight_though_the_optimizer_has_momentum(skipping: bool) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.zero_grad()
    (model(torch.ones(2)).sum() * 0.0).backward()
    callback = SkippedStepCallback()
    callback.skipping = skipping
    callback.on_pre_optimizer_step(None, None, None, model=model)
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)) is skipping


def test_a_step_with_another_batchs_gradient_is_taken() -> None:
    model = torch.nn.Linear(2, 1)
    model(torch.ones(2)).sum().backward()
    callback = SkippedStepCallback()
    callback.skipping = True
    callback.on_pre_optimizer_step(None, None, None, model=model)
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("settings", [{"max_failed_fraction": 1.1}, {"max_skipped_steps": -1}])
def test_numbers_that_mean_nothing_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        SkippedSteps(**{"max_failed_fraction": 1.0, "max_skipped_steps": 0, **settings})  # type: ignore[arg-type]
