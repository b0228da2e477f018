"""TRL's ``GRPOTrainer`` with environments side by side."""

from __future__ import annotations

from trl import GRPOTrainer

from openenv_trl.training.concurrent_environments import ConcurrentEnvironments


class EnvironmentGRPOTrainer(ConcurrentEnvironments, GRPOTrainer):
    """A ``GRPOTrainer`` for ``environment_factory=make_environment_factory(...)``: same arguments, same training.

    The resets and the tool calls of a batch run side by side, an episode that is over leaves the loop, what cannot
    work is said before the first step, and the sessions are closed when training ends, however it does. See
    `ConcurrentEnvironments`, which mixes into trainers built on TRL's, such as Unsloth's.

    Example:
        >>> with make_environment_factory("http://localhost:8000") as factory:
        ...     EnvironmentGRPOTrainer(model=model, environment_factory=factory, train_dataset=dataset).train()
    """
