"""Play many episodes with a policy over environment servers, and sum them up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.evaluation.report import EvaluationReport
from openenv_trl.rewards import environment_reward
from openenv_trl.rollout import EndReason, Policy, RolloutLimits, SamplingParameters, Task, Trajectory
from openenv_trl.rollout.observer import RolloutObserver
from openenv_trl.rollout.play import play_tasks, run_blocking
from openenv_trl.rollout.policy import MessagePolicy
from openenv_trl.rollout.servers import Servers

logger = logging.getLogger("openenv_trl.evaluation")

Progress = Callable[[int, int], None]
"""Called with the number of episodes that have ended, and of all."""


def evaluate(
    name: str,
    policy: Policy | MessagePolicy,
    tokenizer: Any,
    servers: Servers,
    tasks: Sequence[Task],
    *,
    sampling: SamplingParameters | None = None,
    limits: RolloutLimits | None = None,
    concurrency: int = 256,
    unfinished_reward: float = 0.0,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    observer: RolloutObserver | None = None,
) -> EvaluationReport:
    """Play each task once and report the mean return.

    Args:
        name: What is evaluated, for the report.
        policy: Acts in the episodes.
        tokenizer: The policy's tokenizer, with a chat template; None where it takes and gives messages, as
            `ChatPolicy` does.
        servers: Addresses of the environment's servers, or what starts them.
        tasks: What to play. Give each a seed of its own, that training has not seen.
        sampling: Temperature and the rest; ``SamplingParameters(greedy=True)`` takes the likeliest token.
        limits: Turns, tokens and deadlines of an episode.
        concurrency: Episodes that run at once.
        unfinished_reward: Added where the model did not bring the episode to its end: as in `environment_reward`.
        chat_template_kwargs: More arguments of the chat template; give those that training uses.
        progress: Told how far it is.
        observer: Hears what each episode does, such as a `RolloutWatch`.

    Returns:
        The report.

    Raises:
        ConfigurationError: There are no tasks; or their environment refused them all, and the text has its words.
        RolloutFailureError: None of the episodes has a reward.
    """
    if not tasks:
        raise ConfigurationError("evaluate needs at least one task.")
    started = time.monotonic()
    ended = 0

    def count(_: Trajectory) -> None:
        nonlocal ended
        ended += 1
        if progress is not None:
            progress(ended, len(tasks))

    async def play() -> list[Trajectory]:
        return await play_tasks(
            tasks,
            servers,
            tokenizer,
            lambda _: policy,
            sampling=sampling,
            limits=limits,
            concurrency=concurrency,
            chat_template_kwargs=chat_template_kwargs,
            on_trajectory=count,
            observer=observer,
        )

    trajectories = run_blocking(play)
    refused = [each.error for each in trajectories if each.end_reason is EndReason.CONFIGURATION_ERROR]
    if refused:
        text = "%d of %d tasks were refused by their environment, and always will be: correct them, or its settings. %s"
        logger.warning(text, len(refused), len(trajectories), refused[0])
    rewards = environment_reward(unfinished=unfinished_reward)(trajectory=trajectories)
    return EvaluationReport.from_trajectories(name, trajectories, rewards, time.monotonic() - started)
