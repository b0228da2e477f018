"""The numbers of a run: how its episodes ended, how long they took, how much they wrote."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from openenv_trl.rollout.trajectory import EndReason, Trajectory

logger = logging.getLogger("openenv_trl.rollout")

_warned: set[str] = set()


def rollout_metrics(trajectories: Sequence[Trajectory], *, batch_sizes: Sequence[int] = ()) -> dict[str, float]:
    """A flat dict of the run's numbers, ready to log.

    ``end/<reason>`` is the fraction of episodes that ended so; means are over episodes, tokens and turns over those
    that did not fail; seconds are means of an episode, ``seconds`` is the whole run's.

    Args:
        trajectories: What the run brought back.
        batch_sizes: The size of each batch that the policy was given.
    """
    count = len(trajectories)
    if not count:
        return {"episodes": 0.0}
    played = [trajectory for trajectory in trajectories if not trajectory.end_reason.is_failure]
    rewards = [trajectory.reward for trajectory in played]
    reasons = Counter(trajectory.end_reason for trajectory in trajectories)
    model_tokens = [sum(trajectory.mask) for trajectory in played]
    numbers = {
        "episodes": float(count),
        "failed_fraction": (count - len(played)) / count,
        "unrewarded_fraction": sum(reward is None for reward in rewards) / count,
        "retries": float(sum(trajectory.attempts - 1 for trajectory in trajectories)),
        "reward": _mean(reward for reward in rewards if reward is not None),
        "turns": _mean(len(trajectory.turns) for trajectory in played),
        "actions": _mean(len(trajectory.step_rewards) for trajectory in played),
        "invalid_actions": float(sum(trajectory.invalid_actions for trajectory in trajectories)),
        "model_tokens": _mean(model_tokens),
        "environment_tokens": _mean(
            len(trajectory.mask) - model for trajectory, model in zip(played, model_tokens, strict=True)
        ),
        "truncated_observation_tokens": float(
            sum(turn.truncated_observation_tokens for trajectory in trajectories for turn in trajectory.turns)
        ),
        "marks_broken": float(sum(trajectory.marks_broken for trajectory in trajectories)),
        "drift": float(sum(trajectory.drift for trajectory in trajectories)),
        "waiting_s": _mean(trajectory.waiting_s for trajectory in trajectories),
        "reset_s": _mean(trajectory.reset_s for trajectory in trajectories),
        "generate_s": _mean(trajectory.generate_s for trajectory in trajectories),
        "environment_s": _mean(trajectory.environment_s for trajectory in trajectories),
        "seconds": max(trajectory.ended_s for trajectory in trajectories),
        "group_mismatches": float(len(group_mismatches(trajectories))),
        "batches": float(len(batch_sizes)),
        "batch_size": _mean(batch_sizes),
    }
    return numbers | {f"end/{reason.value}": reasons[reason] / count for reason in EndReason if reasons[reason]}


def group_mismatches(trajectories: Sequence[Trajectory]) -> list[str | int]:
    """The groups whose episodes did not all start from the same observation; failed episodes do not count."""
    first: dict[str | int, set[str]] = {}
    for trajectory in trajectories:
        group = trajectory.task.group
        if group is not None and not trajectory.end_reason.is_failure:
            first.setdefault(group, set()).add(trajectory.first_observation)
    return [group for group, observations in first.items() if len(observations) > 1]


def warn_of_group_mismatches(trajectories: Sequence[Trajectory]) -> None:
    """Warn, once in a process, where generations of one prompt did not get the same task."""
    groups = group_mismatches(trajectories)
    if not groups or "group mismatch" in _warned:
        return
    _warned.add("group mismatch")
    group = [trajectory for trajectory in trajectories if trajectory.task.group == groups[0]]
    seen = sorted({t.first_observation for t in group if not t.end_reason.is_failure})
    advice = "Give each group's tasks one seed, and see that the environment's reset honours it."
    if any("task_seed" in trajectory.task.reset for trajectory in group):
        advice = (
            'The tasks share a task_seed and differ in seed (shared_randomness="task"): the environment\'s reset must '
            "take task_seed and draw the task from it alone. Where it does not, share all randomness: "
            'shared_randomness="episode".'
        )
    logger.warning(
        "The generations of a prompt did not start from the same observation (%d groups of this run): %r and %r. Group "
        "advantages then compare different tasks. %s",
        len(groups),
        seen[0][:120],
        seen[1][:120],
        advice,
    )


def _mean(values: Iterable[float]) -> float:
    items = list(values)
    return sum(items) / len(items) if items else 0.0
