"""What a trainer's user may do that a rollout cannot work with, in words."""

from __future__ import annotations

from typing import Any

from openenv_trl.errors import ConfigurationError


def closed_meanwhile(cause: Exception | None = None) -> ConfigurationError:
    """The error of a rollout that was closed by another thread, or a callback.

    Args:
        cause: What that looked like to the batch.
    """
    error = ConfigurationError(
        "The rollout was closed while a batch was played. Close it once trainer.train() has returned; to end the "
        "training early, set control.should_training_stop in a callback of the trainer."
    )
    error.__cause__ = cause
    return error


def refuse_another_tool_loop(trainer: Any) -> None:
    """TRL would run its own tool loop on top of a rollout's episodes, and train on what the environment wrote.

    Args:
        trainer: TRL's ``GRPOTrainer``.

    Raises:
        ConfigurationError: The trainer has tools or an environment factory.
    """
    for name, attribute in (("environment_factory", "environment_factories"), ("tools", "tools")):
        if getattr(trainer, attribute, None):
            raise ConfigurationError(
                f"GRPOTrainer has {name} beside rollout_func: it would run its own tool loop on top of the episodes. "
                f"Leave out {name}; the environment's own tools are offered to the model by EnvironmentRollout."
            )
