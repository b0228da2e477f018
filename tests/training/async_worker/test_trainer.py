"""TRL's own AsyncGRPOTrainer with this worker: real steps, on real weights that really reach the inference server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from openenv_trl import RolloutLimits, environment_reward
from openenv_trl.errors import ConfigurationError, PolicyError, RolloutFailureError
from openenv_trl.rollout.policies import EndpointSettings, SglangPolicy, VllmPolicy
from openenv_trl.training.async_worker import DiskWeightTransfer, EnvironmentRolloutWorker, make_portable

LIMITS = RolloutLimits(max_turns=6, max_completion_tokens=120, max_new_tokens_per_turn=12, max_attempts=1)
MakeRun = Callable[..., Any]


class Run:
    """A trainer, its worker and its weight transfer."""

    def __init__(self, trainer: Any, worker: EnvironmentRolloutWorker, weights: DiskWeightTransfer) -> None:
        self.trainer, self.worker, self.weights = trainer, worker, weights

    def logged(self, name: str) -> list[float]:
        return [entry[name] for entry in self.trainer.state.log_history if entry.get(name) is not None]


@pytest.fixture
def make_run(
    inference: Any, blackjack_url: str, tokenizer: Any, rows: Any, playing_policy_path: Path, tmp_path: Path
) -> MakeRun:
    """Make an AsyncGRPOTrainer over a worker: 16 rows a step, 4 generations a prompt, weights sent after each step."""
    make_portable()
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

    def make(url: str | None = None, dataset: Any = None, policy: Any = None, changes: Any = None, **args: Any) -> Run:
        config = AsyncGRPOConfig(
            **{
                "output_dir": str(tmp_path / "out"),
                "max_steps": 4,
                "per_device_train_batch_size": 16,
                "token_budget": 0,
                "num_generations": 4,
                "max_completion_length": 120,
                "max_staleness": 1,
                "max_inflight_tasks": 16,
                "learning_rate": 3e-3,
                "use_cpu": True,
                "bf16": False,
                "gradient_checkpointing": False,
                "save_strategy": "no",
                "report_to": "none",
                "disable_tqdm": True,
                "vllm_server_base_url": inference.url,
                **args,
            }
        )
        data = rows(64) if dataset is None else dataset
        worker = EnvironmentRolloutWorker.from_config(
            config,
            url or blackjack_url,
            limits=LIMITS,
            tokenizer=tokenizer,
            dataset=data,
            policy=policy or VllmPolicy(inference.url, settings=EndpointSettings(away_timeout_s=0.2, backoff_s=0.02)),
            reward_funcs=[environment_reward(unfinished=-1.0)],
            changes={"shared_randomness": "task" if url is None else "none", **(changes or {})},
        )
        weights = DiskWeightTransfer(inference.url, tmp_path / "weights", playing_policy_path)
        trainer = AsyncGRPOTrainer(
            model=str(playing_policy_path),
            processing_class=tokenizer,
            args=config,
            train_dataset=data,
            rollout_worker=worker,
            weight_transfer=weights,
        )
        return Run(trainer, worker, weights)

    return make


def test_the_trainer_learns_from_rows_whose_probabilities_it_agrees_with(make_run: MakeRun, inference: Any) -> None:
    run = make_run(max_steps=5, max_staleness=0, learning_rate=1e-4)
    before = {name: value.clone() for name, value in run.trainer.model.state_dict().items()}
    run.trainer.train()
    assert len(run.logged("reward")) == 5
    assert any(not torch.equal(before[name], value) for name, value in run.trainer.model.state_dict().items())
    # The first batches are sampled with the very weights that score them: any token, mask or log-prob that was not the
    # sampler's own would show here.
    assert run.logged("ratio")[0] == pytest.approx(1.0, abs=1e-4)
    assert run.logged("kl")[0] == pytest.approx(0.0, abs=1e-6)
    assert all(abs(ratio - 1.0) < 0.2 for ratio in run.logged("ratio"))
    assert max(run.logged("sample/staleness_max")) == 0
    # And the server really has the newest weights: those of the trainer's model, bit for bit.
    assert inference.numbers()["weight_version"] == str(run.trainer.model_version) == str(run.weights.version) == "6"
    sent = load_file(str(run.weights.folder / "version_00000006" / "model.safetensors"))
    own = run.trainer.model.state_dict()
    assert all(torch.equal(own[name], value) for name, value in sent.items())
    assert len(list(run.weights.folder.iterdir())) == 2, "old checkpoints are removed"


def test_training_through_failing_environments_goes_on_and_says_what_was_lost(
    make_run: MakeRun, trial_url: str, rows: Any
) -> None:
    run = make_run(trial_url, rows(64, way="odd seeds raise"), max_steps=3)
    run.trainer.train()
    assert run.trainer.state.global_step == 3
    assert sum(run.logged("rollout/rows_left_out_total")) > 0
    assert any(0.0 < fraction < 1.0 for fraction in run.logged("rollout/failed_fraction"))
    assert max(run.logged("sample/staleness_max")) <= 1


def test_sglangs_route_does_as_well_and_nothing_is_left_after_training(
    make_run: MakeRun, inference: Any, until: Callable[..., None]
) -> None:
    before = {thread for thread in threading.enumerate() if thread.name != "rollout-trace-logger"}
    run = make_run(policy=SglangPolicy(inference.url), max_steps=2)
    run.trainer.train()
    assert run.logged("ratio")[0] == pytest.approx(1.0, abs=1e-4)

    def left() -> set[threading.Thread]:
        # TRL's own thread for traces and tqdm's monitor stay until the process ends.
        kept = ("rollout-trace-logger", "Thread-", "tqdm")
        return {t for t in threading.enumerate() if t not in before and not t.name.startswith(kept)}

    until(lambda: not left(), "all threads of the worker have ended")


def test_a_worker_that_dies_ends_training_at_once_with_its_reason(
    make_run: MakeRun, trial_url: str, rows: Any, until: Callable[..., None]
) -> None:
    run = make_run(trial_url, rows(16, way="raises"), changes={"max_lost_groups": 2})
    with pytest.raises(RolloutFailureError, match="the deck is missing"):
        run.trainer.train()
    assert run.worker.groups["inflight"] == 0


def test_weights_that_the_server_cannot_load_are_an_error_and_not_a_silence(
    inference: Any, playing_policy_path: Path, tmp_path: Path
) -> None:
    transfer = DiskWeightTransfer(inference.url, tmp_path, playing_policy_path)
    transfer.init_weight_transfer()
    transfer.pause()
    with pytest.raises(PolicyError, match="update_weights_from_disk answered 400"):
        transfer.send_weights(iter([("no.such.parameter", torch.zeros(2))]))
    transfer.resume()
    transfer.destroy()
    with pytest.raises(ConfigurationError, match=r"config\.json"):
        DiskWeightTransfer(inference.url, tmp_path, tmp_path / "nowhere")


def test_a_server_that_is_not_there_is_told_before_training(playing_policy_path: Path, tmp_path: Path) -> None:
    transfer = DiskWeightTransfer("http://127.0.0.1:9", tmp_path, playing_policy_path, ready_timeout_s=0.1)
    with pytest.raises(PolicyError, match="ready_timeout_s"):
        transfer.init_weight_transfer()
    transfer.destroy()
