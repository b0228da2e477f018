"""The numbers of a run: how its episodes ended, how long they took, how much they wrote.

What each is called and says: `openenv_trl.rollout.metric_table`.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from openenv_trl.rollout.trajectory import EndReason, Trajectory

logger = logging.getLogger("openenv_trl.rollout")

_warned: set[str] = set()
_CUT_BY_A_LIMIT = frozenset({EndReason.TRUNCATED, EndReason.MAX_TURNS, EndReason.MAX_TOKENS})


def rollout_metrics(
    trajectories: Sequence[Trajectory], *, batch_sizes: Sequence[int] = (), tools: Sequence[str] = ()
) -> dict[str, float]:
    """A flat dict of the run's numbers, ready to log.

    ``end/<reason>`` is the fraction of episodes that ended so; means are over episodes, tokens and turns over those
    that did not fail; seconds are means of an episode, ``seconds`` is the whole run's. A number is absent where there
    is nothing to say: a mean of nothing is not 0.0.

    Args:
        trajectories: What the run brought back.
        batch_sizes: The size of each batch that the policy was given.
        tools: The environment's tools, by name: each is counted, also where it was not called.
    """
    count = len(trajectories)
    if not count:
        return {"episodes": 0.0}
    played = [trajectory for trajectory in trajectories if not trajectory.end_reason.is_failure]
    rewards = [reward for trajectory in played if (reward := trajectory.reward) is not None]
    reasons = Counter(trajectory.end_reason for trajectory in trajectories)
    shown = [reason for reason in EndReason if reasons[reason] or not reason.is_failure]
    masks = [part.mask for trajectory in played for part in (trajectory, *trajectory.earlier)]
    model_tokens, tokens = sum(map(sum, masks)), sum(map(len, masks))
    # Of a policy in messages there are no ids, and what it wrote is known from its own count.
    unmasked = [turn for trajectory in played if not trajectory.token_exact for turn in trajectory.turns]
    told = sum(turn.completion_tokens for turn in unmasked)
    model_tokens, tokens = model_tokens + told, tokens + told
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    invalid = sum(trajectory.invalid_actions for trajectory in trajectories)
    asked = sum(len(turn.actions) + len(turn.problems) for turn in turns)
    each = max(len(played), 1)
    numbers = {
        "episodes": float(count),
        "failed_fraction": (count - len(played)) / count,
        "unrewarded_fraction": (len(played) - len(rewards)) / count,
        "truncated_fraction": sum(reasons[reason] for reason in _CUT_BY_A_LIMIT) / each,
        "retries": float(sum(trajectory.attempts - 1 for trajectory in trajectories)),
        "turns": sum(len(trajectory.turns) for trajectory in played) / each,
        "actions": sum(len(trajectory.step_rewards) for trajectory in played) / each,
        "invalid_actions": float(invalid),
        "invalid_fraction": invalid / asked if asked else 0.0,
        "model_tokens": model_tokens / each,
        "environment_tokens": (tokens - model_tokens) / each,
        "truncated_observations": float(sum(turn.truncated_observation_tokens > 0 for turn in turns)),
        "truncated_observation_tokens": float(sum(turn.truncated_observation_tokens for turn in turns)),
        "marks_broken": float(sum(trajectory.marks_broken for trajectory in trajectories)),
        "drift": float(sum(trajectory.drift for trajectory in trajectories)),
        "waiting_s": _mean(trajectory.waiting_s for trajectory in trajectories),
        "reset_s": _mean(trajectory.reset_s for trajectory in trajectories),
        "generate_s": _mean(trajectory.generate_s for trajectory in trajectories),
        "environment_s": _mean(trajectory.environment_s for trajectory in trajectories),
        "seconds": max(trajectory.ended_s for trajectory in trajectories),
        "group_mismatches": float(len(group_mismatches(trajectories))),
    }
    if rewards:
        numbers["reward"] = _mean(rewards)
    if batch_sizes:
        numbers["batches"], numbers["batch_size"] = float(len(batch_sizes)), _mean(batch_sizes)
        numbers["batch_occupancy"] = min(_mean(batch_sizes) / most_at_once(trajectories), 1.0)
    numbers |= {f"end/{reason.value}": reasons[reason] / count for reason in shown}
    numbers |= {f"tool_calls/{tool}": calls / each for tool, calls in _tool_calls(played, tools).items()}
    numbers |= {f"time_share/{phase}": share for phase, share in time_shares(trajectories).items()}
    seconds = sorted(trajectory.ended_s - trajectory.started_s for trajectory in trajectories)
    numbers |= {f"episode_s/p{p}": seconds[math.ceil(p / 100 * count) - 1] for p in (50, 95)}
    return numbers | {"episode_s/max": seconds[-1]}


def time_shares(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """What part of the episodes' seconds went to each phase, from 0 to 1; all 0.0 where no time passed.

    "other" is what is left: attempts that failed, the pauses before the next ones, the engine's own work.
    """
    spent = {
        "waiting": sum(trajectory.waiting_s for trajectory in trajectories),
        "reset": sum(trajectory.reset_s for trajectory in trajectories),
        "generating": sum(trajectory.generate_s for trajectory in trajectories),
        "stepping": sum(trajectory.environment_s for trajectory in trajectories),
    }
    whole = sum(trajectory.ended_s - trajectory.started_s for trajectory in trajectories)
    spent["other"] = max(whole - sum(spent.values()), 0.0)
    total = sum(spent.values())
    return {phase: seconds / total if total > 0 else 0.0 for phase, seconds in spent.items()}


def slowest_phase(trajectories: Sequence[Trajectory]) -> tuple[str, float]:
    """The phase that most of the episodes' time went to, and its share from 0 to 1."""
    shares = time_shares(trajectories)
    most = max(shares, key=shares.__getitem__)
    return most, shares[most]


def most_at_once(trajectories: Sequence[Trajectory]) -> int:
    """The most episodes that were open at one time; at least 1."""
    # Where one ends at the moment in which another begins, it made room for that.
    events = sorted([(t.started_s, 1) for t in trajectories] + [(t.ended_s, -1) for t in trajectories])
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return max(most, 1)


def _tool_calls(played: Sequence[Trajectory], tools: Sequence[str]) -> dict[str, int]:
    calls = dict.fromkeys(tools, 0)
    for trajectory in played:
        for turn in trajectory.turns:
            for action in turn.actions:
                name = action.get("tool_name")
                tool = name if action.get("type") == "call_tool" and isinstance(name, str) else "act"
                calls[tool] = calls.get(tool, 0) + 1
    return calls


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
