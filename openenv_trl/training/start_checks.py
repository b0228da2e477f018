"""What cannot work is said before the first step, with what to change."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and trl are typed in part only)
from __future__ import annotations

import logging
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.training.environment_batch import NO_SEED, too_few_sessions
from openenv_trl.training.environment_factory import EnvironmentFactory
from openenv_trl.training.trl_version import check_trl_version

logger = logging.getLogger(__name__)


def check_environment_training(trainer: Any) -> None:
    """Check a ``GRPOTrainer`` with an ``environment_factory`` of this package. `EnvironmentGRPOTrainer` does so itself.

    Args:
        trainer: The trainer, made and not yet started.

    Raises:
        ConfigurationError: The servers have too few sessions for a batch; prompts are strings; several processes share
            a vLLM server, whose calls TRL's loop does not keep in step; or TRL is of another version.
    """
    check_trl_version()
    factories = trainer.environment_factories or {}
    ours = {name: factory for name, factory in factories.items() if isinstance(factory, EnvironmentFactory)}
    if not ours:
        return
    _check_ranks(trainer)
    _check_prompts(trainer.train_dataset)
    for factory in ours.values():
        _check_capacity(trainer, factory, alone=len(factories) == 1)
    if not _derives_seeds(trainer):
        names = getattr(trainer.train_dataset, "column_names", None)
        if names is not None and not {"seed", "task_seed"} & set(names):
            logger.warning(NO_SEED)


def template_error(error: ValueError) -> ConfigurationError | None:
    """What to change where TRL refuses a chat template; None where it refuses something else."""
    text = str(error)
    if "chat template" not in text:
        return None
    return ConfigurationError(
        f"{text} Use a model whose chat template carries tool calls (Qwen2.5, Qwen3, Llama 3.1, gpt-oss, ...), or set "
        "tokenizer.chat_template to one that does, and tokenizer.response_template so that calls can be read "
        "(openenv_trl.training.tiny_policy has both for ChatML), and pass it as processing_class. Or let the model act "
        "in plain text: rollout_func=EnvironmentRollout(..., actions=TextActions(...))."
    )


def _check_ranks(trainer: Any) -> None:
    ranks = int(trainer.accelerator.num_processes)
    if ranks > 1 and getattr(trainer.args, "use_vllm", False) and trainer.args.vllm_mode == "server":
        raise ConfigurationError(
            f"environment_factory with vllm_mode='server' and {ranks} processes: all of them must ask the vLLM server "
            "equally often, and TRL's tool loop asks as often as its own episodes have turns, so the run ends in "
            "mismatched collectives or hangs. Set vllm_mode='colocate', train in one process, or use "
            "rollout_func=EnvironmentRollout(...), which keeps the processes in step."
        )


def _check_prompts(dataset: Any) -> None:
    if dataset is None or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__") or not len(dataset):
        return
    prompt: Any = dataset[0].get("prompt")
    if isinstance(prompt, str):
        raise ConfigurationError(
            "The dataset's prompts are strings, and an environment needs conversations: write each prompt as "
            "[{'role': 'user', 'content': ...}]."
        )


def _check_capacity(trainer: Any, factory: EnvironmentFactory, *, alone: bool) -> None:
    if factory.capacity is None:
        return
    args, ranks = trainer.args, int(trainer.accelerator.num_processes)
    training = int(args.per_device_train_batch_size) * int(args.steps_per_generation)
    evaluating = int(args.per_device_eval_batch_size) if trainer.eval_dataset is not None else 0
    here = max(training, evaluating)
    if here > factory.capacity and alone:
        raise ConfigurationError(too_few_sessions(here, factory.capacity, factory.sessions))
    if here * ranks > factory.capacity:
        logger.warning(
            "A batch of all processes may need %d sessions of '%s' at once, and the servers allow %d. Unless each "
            "process has servers of its own, start them with a larger MAX_CONCURRENT_ENVS.",
            here * ranks,
            factory.__name__,
            factory.capacity,
        )


def _derives_seeds(trainer: Any) -> bool:
    from openenv_trl.training.concurrent_environments import ConcurrentEnvironments

    return isinstance(trainer, ConcurrentEnvironments)
