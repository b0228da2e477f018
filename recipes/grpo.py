# /// script
# requires-python = ">=3.10"
# dependencies = ["openenv-trl[train]"]
# ///
"""GRPO on an OpenEnv environment, any that speaks the protocol.

    accelerate launch recipes/grpo.py --config configs/blackjack_cpu.yaml --learning_rate 1e-3

One YAML file holds everything: what TRL's GRPOConfig and ModelConfig take, and the environment's own settings
(`openenv_trl.training.EnvironmentArguments`). The command line overrides it. The environment is a package folder, whose
servers are started here (`environment: environments/blackjack_env`), servers that run already
(`environment_urls: [http://localhost:8000]`), or what a provider starts (`provider: {type: docker, image: ...}`); or
several of them, by name
(`environments: {cards: {environment: ...}, balls: {environment: ..., weight: 2}}`).
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is what this recipe is about

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser, get_peft_config, get_quantization_config

from openenv_trl.rollout.watch import RolloutWatch
from openenv_trl.training import (
    EnvironmentArguments,
    EnvironmentRollout,
    RolloutProgress,
    WarmStartSettings,
    disable_progress_bars,
    open_environments,
    warm_start,
)


def main(environment: EnvironmentArguments, training: GRPOConfig, model_arguments: ModelConfig) -> None:
    """Train, from the three groups of settings."""
    if training.disable_tqdm:
        disable_progress_bars()
    if training.use_cpu:
        torch.set_num_threads(1)  # a small model is faster on one thread, and the servers need the other core

    with open_environments(environment, training.max_completion_length) as environments:
        # The tasks. Each row has a prompt; its other columns go to the environment's reset().
        dataset = environment.load_dataset()
        limits = environment.limits(max_completion_tokens=training.max_completion_length)

        # The model. A tiny one is made where none is there: it speaks the protocol and plays at random.
        model_path = model_arguments.model_name_or_path
        if environment.tiny_policy and not Path(model_path, "config.json").exists():
            with training.main_process_first(desc="warm start"):
                warm_start(
                    model_path,
                    environments,
                    dataset,
                    WarmStartSettings.from_arguments(environment, seed=training.seed),
                    limits=limits,
                    chat_template_kwargs=training.chat_template_kwargs,
                )
        tokenizer = AutoTokenizer.from_pretrained(model_path, revision=model_arguments.model_revision)
        model = AutoModelForCausalLM.from_pretrained(
            model_path,
            revision=model_arguments.model_revision,
            attn_implementation=model_arguments.attn_implementation,
            dtype=model_arguments.dtype,
            quantization_config=get_quantization_config(model_arguments),
        )

        # The rollouts: all episodes of a batch at once, over the servers.
        rollout = EnvironmentRollout(
            environments,
            sessions_per_server=environment.sessions_per_server,
            limits=limits,
            strategies=environment.rollout_strategies(),
            shared_randomness=environment.shared_randomness,
            max_failed_fraction=environment.max_failed_fraction,
            max_skipped_steps=environment.max_skipped_steps,
            curriculum=environment.curricula(),
            trajectory_dir=Path(training.output_dir, "trajectories") if environment.save_trajectories else None,
            observer=RolloutWatch() if environment.watch and training.process_index == 0 else None,
        )
        with rollout:
            trainer = GRPOTrainer(
                model=model,
                processing_class=tokenizer,
                args=training,
                train_dataset=rollout.prepare_dataset(dataset),
                rollout_func=rollout,
                reward_funcs=[environment.reward_function()],
                peft_config=get_peft_config(model_arguments),
            )
            if training.disable_tqdm:  # one line for some steps, in place of all metrics for each
                trainer.remove_callback(ProgressCallback)
                trainer.remove_callback(PrinterCallback)
                trainer.add_callback(RolloutProgress())
            trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)

        trainer.save_model(training.output_dir)
        tokenizer.save_pretrained(training.output_dir)
        trainer.save_state()  # trainer_state.json: the log of every step
        trainer.accelerator.print(f"Saved the model to {training.output_dir}")


if __name__ == "__main__":
    parser = TrlParser((EnvironmentArguments, GRPOConfig, ModelConfig))
    main(*parser.parse_args_and_config())
