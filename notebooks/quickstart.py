# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A language model learns blackjack over real environment servers
#
# This notebook starts OpenEnv environment servers, makes a tiny language model that speaks their protocol and plays at random,
# and trains it with TRL's `GRPOTrainer`. It needs no GPU. Every episode of a batch runs at the same time; what the model is
# trained on are exactly the tokens that it sampled.

# %% [markdown]
# ## Install
#
# In a checkout of the project everything is there after `make quickstart`, but for Jupyter itself (`pip install jupyter`).
# Run the notebook in the checkout: the environment is one of its folders.

# %%
import importlib.util

if importlib.util.find_spec("openenv_trl") is None:
    raise SystemExit("Install the project first: make quickstart, or pip install -e '.[train]' in the checkout.")

# %% [markdown]
# ## Settings
#
# The small settings take about a minute and show that everything runs; the full ones take about ten minutes and learn to play.

# %% tags=["parameters"]
full = False
output_dir = "outputs/notebook"
environment = "environments/blackjack_env"

# %%
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
if not Path(environment).exists():  # the notebook's own folder, in a checkout
    os.chdir(Path.cwd().parent)

import torch

torch.set_num_threads(1)

# %% [markdown]
# ## The environment
#
# A server process, started here and gone when this kernel ends. Each session has a game of its own. One hand by hand:

# %%
from openenv_trl import GenericEnvClient, ProcessProvider

servers = ProcessProvider(environment, replicas=1, env_vars={"MAX_CONCURRENT_ENVS": "512"})
servers.start_sync()
urls = list(servers.base_urls)

with GenericEnvClient(urls[0]).sync() as env:
    print(env.reset(seed=7).observation["message"])
    result = env.step({"type": "call_tool", "tool_name": "stand", "arguments": {}})
    print(result.observation["message"], "Reward:", result.reward)

# %% [markdown]
# ## A tiny model that plays at random
#
# Supervised training on random, well-formed games. Use any model with a tool-calling chat template instead.

# %%
from openenv_trl import RolloutLimits
from openenv_trl.training import WarmStartSettings, warm_start

rows = [{"prompt": "Play blackjack.", "seed": seed} for seed in range(20_000)]
limits = RolloutLimits(max_turns=8, max_completion_tokens=200, max_new_tokens_per_turn=8, max_invalid_actions=0)
settings = WarmStartSettings(episodes=8192 if full else 512, steps=500 if full else 150, layers=1, hidden_size=96)
model, tokenizer = warm_start(f"{output_dir}/warm_start", urls, rows, settings, limits=limits)

# %% [markdown]
# ## Train
#
# The data set has a column `seed`: `prepare_dataset` makes it reach the environment's `reset`. The generations of a prompt share
# the first cards (`shared_randomness="task"`) and not the cards to come.

# %%
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from openenv_trl import environment_reward
from openenv_trl.training import EnvironmentRollout, RolloutProgress

rollout = EnvironmentRollout(urls, sessions_per_server=512, limits=limits, shared_randomness="task")
dataset = rollout.prepare_dataset(rows)
trainer = GRPOTrainer(
    model=f"{output_dir}/warm_start",
    processing_class=tokenizer,
    reward_funcs=[environment_reward(unfinished=-1.0)],
    rollout_func=rollout,
    train_dataset=dataset,
    args=GRPOConfig(
        output_dir=f"{output_dir}/grpo",
        max_steps=220 if full else 4,
        per_device_train_batch_size=512 if full else 64,
        num_generations=16 if full else 8,
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        adam_beta2=0.99,
        loss_type="dr_grpo",
        scale_rewards="none",
        beta=0.15,  # holds the policy near the reference: without it, play collapses into always-stand
        sync_ref_model=True,
        ref_model_mixup_alpha=1.0,
        ref_model_sync_steps=80,
        max_completion_length=200,
        logging_steps=1,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    ),
)
trainer.remove_callback(PrinterCallback)  # one line for some steps, in place of all metrics for each
trainer.add_callback(RolloutProgress())
trainer.train()
rollout.close()

# %% [markdown]
# ## The learning curve

# %%
from openenv_trl.evaluation.curve import learning_curve

learning_curve(
    f"{output_dir}/learning_curve.png",
    trainer.state.log_history,
    title="GRPO on blackjack",
    references={"random": -0.3959, "always stand": -0.1864, "optimal": -0.0466},
)

# %%
from IPython.display import Image

Image(f"{output_dir}/learning_curve.png")

# %% [markdown]
# ## Evaluate

# %%
from openenv_trl import Task
from openenv_trl.evaluation import comparison_table, evaluate
from openenv_trl.training import TransformersPolicy

prompt = [{"role": "user", "content": "Play blackjack."}]
tasks = [Task(prompt=prompt, reset={"seed": 10**9 + i}) for i in range(20_000 if full else 500)]
report = evaluate(
    "after training, sampled",
    TransformersPolicy(trainer.model.eval(), tokenizer),
    tokenizer,
    urls,
    tasks,
    limits=limits,
    concurrency=512,
    unfinished_reward=-1.0,
)
comparison_table("Mean return", [report], {"random": -0.3959, "optimal": -0.0466})

# %%
servers.stop_sync()
