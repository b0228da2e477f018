# /// script
# requires-python = ">=3.10"
# dependencies = ["openenv-trl[train]"]
# ///
"""Asynchronous GRPO on an OpenEnv environment: episodes are played while the model trains.

    python recipes/async_grpo.py --config configs/async_grpo/blackjack_cpu.yaml

The model samples in an inference server of its own. Either it runs already (`inference_url`), or it is started here
(`inference_command`, such as `vllm serve {model} --port {port} --logprobs-mode processed_logprobs`). With vLLM, TRL
sends it new weights over NCCL; with SGLang they go through a folder (`weight_folder`). See docs/async.md.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from transformers import AutoTokenizer
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from trl import TrlParser

from openenv_trl.training import (
    EnvironmentArguments,
    RolloutProgress,
    WarmStartSettings,
    disable_progress_bars,
    open_servers,
    warm_start,
)
from openenv_trl.training.async_worker import (
    DiskWeightTransfer,
    EnvironmentRolloutWorker,
    InferenceArguments,
    make_portable,
    trajectory_files,
)

make_portable()  # before the trainer is imported: without CUDA it runs on plain torch

from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer


def main(environment: EnvironmentArguments, training: AsyncGRPOConfig, inference: InferenceArguments) -> dict[str, int]:
    """Train, from the three groups of settings; what became of the groups, by name."""
    if training.disable_tqdm:
        disable_progress_bars()
    if training.use_cpu:
        torch.set_num_threads(1)  # a small model is faster on one thread, and the servers need the other core

    with open_servers(environment) as base_urls:
        # The tasks. Each row has a prompt; its other columns go to the environment's reset().
        dataset = environment.load_dataset()
        limits = environment.limits(max_completion_tokens=training.max_completion_length)

        # The model. A tiny one is made where none is there: it speaks the protocol and plays at random.
        model_path = inference.model_name_or_path
        if environment.tiny_policy and not Path(model_path, "config.json").exists():
            warm_start(
                model_path,
                base_urls,
                dataset,
                WarmStartSettings.from_arguments(environment, seed=training.seed),
                limits=limits,
                chat_template_kwargs=training.chat_template_kwargs,
            )
        tokenizer = AutoTokenizer.from_pretrained(model_path)

        with inference.server(model_path) as inference_url:
            # The rollouts: played in a thread, over the environment servers, while the trainer trains.
            folder = Path(training.output_dir, "trajectories")
            worker = EnvironmentRolloutWorker.from_config(
                training,
                base_urls,
                limits=limits,
                tokenizer=tokenizer,
                dataset=dataset,
                policy=inference.policy(inference_url),
                reward_funcs=[environment.reward_function()],
                on_group=trajectory_files(folder) if environment.save_trajectories else None,
                changes={
                    "shared_randomness": environment.shared_randomness,
                    "scale_rewards": inference.scale_rewards,
                    "keep_equal_groups": inference.keep_equal_groups,
                },
            )
            # The weights: through a folder, or TRL's own way (None).
            transfer = None
            if inference.weight_folder is not None:
                transfer = DiskWeightTransfer(inference_url, inference.weight_folder, model_path)
            training.vllm_server_base_url = inference_url
            trainer = AsyncGRPOTrainer(
                model=model_path,
                processing_class=tokenizer,
                args=training,
                train_dataset=dataset,
                rollout_worker=worker,
                weight_transfer=transfer,
            )
            if training.disable_tqdm:  # one line for some steps, in place of all metrics for each
                trainer.remove_callback(ProgressCallback)
                trainer.remove_callback(PrinterCallback)
                trainer.add_callback(RolloutProgress())
            trainer.train()

        trainer.save_model(training.output_dir)
        tokenizer.save_pretrained(training.output_dir)
        trainer.save_state()  # trainer_state.json: the log of every step
        print(f"Saved the model to {training.output_dir}")
        return worker.groups


if __name__ == "__main__":
    parser = TrlParser((EnvironmentArguments, AsyncGRPOConfig, InferenceArguments))
    main(*parser.parse_args_and_config())
