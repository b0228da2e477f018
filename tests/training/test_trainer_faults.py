"""What TRL takes from a ``rollout_func`` without a word, or fails at far away: shown on TRL, and not there in ours.

Each test first breaks a sound output in one way and lets a real GRPOTrainer have it, to show what would come of it;
then shows that what `EnvironmentRollout` gives has no such fault, or is refused with what to change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from openenv_trl.errors import ConfigurationError, ProtocolError
from openenv_trl.rollout import EndReason, Task, Trajectory
from openenv_trl.training import EnvironmentRollout
from openenv_trl.training.rows import check_columns, trajectories_to_rows

from .scripted import LIMITS, MakeTrainer, Replies, by_the_cards, rows

Break = Callable[[dict[str, Any]], Any]


class Outcome:
    """One step over the output of a rollout, as it is or broken."""

    def __init__(self, make_trainer: MakeTrainer, url: str, break_it: Break | None, **settings: Any) -> None:
        self.output: dict[str, Any] = {}
        self.seen: dict[str, Any] = {}
        self.batch: dict[str, Any] = {}
        with EnvironmentRollout(url, limits=LIMITS, shared_randomness="none") as rollout:

            def broken(prompts: list[Any], trainer: Any) -> Any:
                self.output = rollout(prompts, trainer)
                if break_it is None:
                    return self.output
                copied = {k: list(v) if isinstance(v, list) else v for k, v in self.output.items()}
                return break_it(copied) or copied

            trainer = make_trainer(
                broken, rollout.prepare_dataset(rows()), {"reward_funcs": [self.reward]}, max_steps=1, **settings
            )
            Replies(trainer, by_the_cards)
            score = trainer._generate_and_score_completions
            trainer._generate_and_score_completions = lambda inputs: self._keep(score(inputs))  # type: ignore
            self.trainer: GRPOTrainer = trainer
            trainer.train()

    def reward(self, **columns: Any) -> list[float]:
        self.seen = columns
        return [float(i % 2) for i in range(len(columns["completions"]))]

    def _keep(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.batch = batch
        return batch

    @property
    def trained_tokens(self) -> list[int]:
        """Tokens of each row that the loss sees."""
        mask = self.batch["completion_mask"] * self.batch.get("tool_mask", torch.tensor(1))
        return [int(n) for n in mask.sum(1)]

    @property
    def sampled_tokens(self) -> list[int]:
        return [sum(mask) for mask in self.output["env_mask"]]


def short_mask(output: dict[str, Any]) -> None:
    """The mask of a row ends with the model's first message."""
    masks = output["env_mask"]
    row = next(i for i, mask in enumerate(masks) if 0 in mask and len(mask) < max(map(len, masks)))
    masks[row] = masks[row][: masks[row].index(0)]


def test_a_short_mask_trains_what_the_environment_wrote(make_trainer: MakeTrainer, blackjack_url: str) -> None:
    fault = Outcome(make_trainer, blackjack_url, short_mask)
    assert sum(fault.trained_tokens) > sum(fault.sampled_tokens)
    short_mask(fault.output)
    with pytest.raises(ProtocolError, match="'env_mask': "):
        check_columns(fault.output, 8)


def test_a_mask_under_another_name_masks_nothing(make_trainer: MakeTrainer, blackjack_url: str) -> None:
    fault = Outcome(make_trainer, blackjack_url, lambda out: out.update(tool_mask=out.pop("env_mask")))
    assert "tool_mask" not in fault.batch
    assert "tool_mask" in fault.seen, "TRL hands it to the reward functions"
    with pytest.raises(ProtocolError, match="env_mask"):
        check_columns({k: v for k, v in fault.output.items() if k != "env_mask"}, 8)


def test_a_column_that_is_no_list_goes_to_every_row_whole(make_trainer: MakeTrainer, blackjack_url: str) -> None:
    fault = Outcome(make_trainer, blackjack_url, lambda out: out.update(trajectory=tuple(out["trajectory"])))
    assert len(fault.seen["trajectory"][0]) == 8
    with pytest.raises(ProtocolError, match="'trajectory' must be a list"):
        check_columns({**fault.output, "trajectory": tuple(fault.output["trajectory"])}, 8)


def test_ours_has_none_of_these(make_trainer: MakeTrainer, blackjack_url: str) -> None:
    sound = Outcome(make_trainer, blackjack_url, None)
    check_columns(sound.output, 8)
    assert sorted(sound.trained_tokens) == sorted(sound.sampled_tokens)
    assert "env_mask" not in sound.seen
    assert [t.__class__ for t in sound.seen["trajectory"]] == [Trajectory] * 8
    assert all(isinstance(column, list) or column is None for column in sound.output.values())


@pytest.mark.parametrize(
    ("break_it", "error", "words"),
    [
        (lambda out: out["completion_ids"].__setitem__(0, []), Exception, "as many"),
        (lambda out: {k: v * 2 if isinstance(v, list) else v for k, v in out.items()}, Exception, "one entry"),
        (lambda out: {k: v[:4] if isinstance(v, list) else v for k, v in out.items()}, Exception, "one entry"),
        (lambda out: out.pop("logprobs") and None, ValueError, "logprobs"),
        (lambda out: out.update(trajectory=out["trajectory"][:4]), KeyError, "one entry"),
        (lambda out: out.update(env_mask=[mask[:-1] for mask in out["env_mask"]]), RuntimeError, "as many"),
    ],
    ids=["no token", "twice the rows", "half the rows", "no log-probs", "a short column", "all masks short"],
)
def test_what_trl_fails_at_far_away_is_said_at_once(
    make_trainer: MakeTrainer, blackjack_url: str, break_it: Break, error: type[Exception], words: str
) -> None:
    kept: dict[str, Any] = {}

    def keep(output: dict[str, Any]) -> Any:
        kept.update(break_it(output) or output)
        return kept

    with pytest.raises(error):
        Outcome(make_trainer, blackjack_url, keep)
    with pytest.raises(ProtocolError, match=words):
        check_columns(kept, 8)


def test_an_episode_without_a_token_is_one_masked_token(make_trainer: MakeTrainer) -> None:
    failed = Trajectory(Task([{"role": "user", "content": "x"}]), [], [], [], [], [], EndReason.CONNECT_FAILED)
    columns = trajectories_to_rows([failed], fallback_id=7)
    assert (columns["prompt_ids"], columns["completion_ids"], columns["env_mask"]) == ([[7]], [[7]], [[0]])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"completion_ids": [[]], "env_mask": [[]], "logprobs": None}, "no token"),
        ({"prompt_ids": [[]]}, "no token"),
        ({"env_mask": [[2]]}, "of 0 and 1"),
        ({"logprobs": [[0.0, 0.0]]}, "as many"),
    ],
)
def test_rows_that_nothing_could_be_learned_from_rightly_are_refused(change: dict[str, Any], words: str) -> None:
    sound = {"prompt_ids": [[1]], "completion_ids": [[2]], "env_mask": [[1]], "logprobs": [[0.0]]}
    check_columns(sound, 1)
    with pytest.raises(ProtocolError, match=words):
        check_columns({**sound, **change}, 1)


def test_log_probs_are_there_for_a_trainer_that_reads_them_also_where_no_episode_has_any() -> None:
    failed = Trajectory(Task([{"role": "user", "content": "x"}]), [1], [], [], None, [], EndReason.CONNECT_FAILED)
    assert trajectories_to_rows([failed], fallback_id=7)["logprobs"] is None
    assert trajectories_to_rows([failed], fallback_id=7, need_logprobs=True)["logprobs"] == [[0.0]]


def test_a_rollout_beside_tools_or_an_environment_factory_is_refused(
    make_trainer: MakeTrainer, blackjack_url: str
) -> None:
    def shout(text: str) -> str:
        """Says it loudly.

        Args:
            text: What to say.
        """
        return text.upper()

    class Factory:
        def reset(self, **_: Any) -> None: ...

        def hit(self) -> str:
            """Take a card."""
            return ""

    for parts, words in (({"tools": [shout]}, "tools"), ({"environment_factory": Factory}, "environment_factory")):
        with EnvironmentRollout(blackjack_url, limits=LIMITS) as rollout:
            trainer = make_trainer(rollout, rollout.prepare_dataset(rows()), parts)
            with pytest.raises(ConfigurationError, match=f"has {words} beside rollout_func"):
                trainer.train()


def test_an_episode_without_log_probs_among_others_with_them_is_left_out_and_said(caplog: Any) -> None:
    task = Task([{"role": "user", "content": "x"}])
    known = Trajectory(task, [1], [2, 3], [1, 1], [-0.5, -0.5], [], EndReason.DONE)
    unknown = Trajectory(task, [1], [2, 3], [1, 1], None, [], EndReason.DONE)
    columns = trajectories_to_rows([known, unknown], fallback_id=7)
    assert columns["env_mask"] == [[1, 1], [0, 0]]
    assert "1 of 2 episodes came without the sampler's log-probs" in caplog.text
    assert trajectories_to_rows([unknown], fallback_id=7)["env_mask"] == [[1, 1]]  # nobody reads log-probs there
    assert trajectories_to_rows([unknown], fallback_id=7, need_logprobs=True)["env_mask"] == [[0, 0]]
