"""What the numbers of a run are called, and what each says.

`docs/metrics.md` shows this list; a test compares the two with what a run really gives. In a name, ``<...>`` stands for
the name of an end reason, a tool, a phase.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One number of a run.

    Attributes:
        name: What it is logged by, below ``rollout/``.
        says: What it is.
    """

    name: str
    says: str


METRICS = (
    Metric("episodes", "Episodes that came back."),
    Metric("failed_fraction", "Share of them that failed after all tries."),
    Metric("end/<reason>", "Share that ended so, by `EndReason`. A failure's is there where it happened only."),
    Metric("unrewarded_fraction", "Share that was played, and that the environment gave no reward."),
    Metric("truncated_fraction", "Share of the played that a limit ended: the environment's, of turns, of tokens."),
    Metric("retries", "Sessions beyond the first, of all episodes together."),
    Metric("reward", "Mean of the environment's rewards; absent where there is none."),
    Metric("turns", "Messages of the model in a played episode, mean."),
    Metric("actions", "Actions taken in a played episode, mean."),
    Metric("tool_calls/<tool>", "Calls of that tool in a played episode, mean. `act`: actions that are no tool call."),
    Metric("invalid_actions", "Actions that were invalid, by their form or in the environment's eyes, all together."),
    Metric("invalid_fraction", "Their share of all actions that the model asked for."),
    Metric("model_tokens", "Tokens that the model wrote in a played episode, mean."),
    Metric("environment_tokens", "Tokens that the environment wrote in it after the prompt, mean."),
    Metric("truncated_observations", "Turns whose observations were cut by `max_observation_tokens`."),
    Metric("truncated_observation_tokens", "Tokens that were cut off them."),
    Metric("marks_broken", "Marks of control tokens in the environment's texts that were broken."),
    Metric("drift", "Messages of the model that do not stand in the row as they were sampled. Stays 0."),
    Metric("waiting_s", "Seconds that an episode waited for sessions, mean."),
    Metric("reset_s", "Seconds that its `reset` took, mean."),
    Metric("generate_s", "Seconds that it waited for the model, mean."),
    Metric("environment_s", "Seconds that its steps took, mean."),
    Metric("time_share/<phase>", "Share of the episodes' seconds in that phase. The largest names the slowest phase."),
    Metric("episode_s/p50", "Seconds of an episode, from its turn to its end: half take no longer."),
    Metric("episode_s/p95", "The same: 95 of 100 take no longer."),
    Metric("episode_s/max", "The slowest episode's."),
    Metric("seconds", "Seconds of the whole run."),
    Metric("group_mismatches", "Groups whose episodes did not all begin with the same observation."),
    Metric("batches", "Batches that the policy was given; absent where episodes ask it one by one elsewhere."),
    Metric("batch_size", "Prompts in a batch, mean."),
    Metric("batch_occupancy", "Mean batch size, as a share of the most episodes that were open at once."),
)
"""The numbers of `rollout_metrics`."""

BIAS_METRICS = (
    Metric("dropped/fraction", "Share of all episodes played that is not learned from: failed, or surplus."),
    Metric("dropped/<reason>", "How many, by `EndReason`; there where it happened only."),
    Metric("dropped/groups_hit", "Groups that lost episodes."),
    Metric("dropped/groups_lost", "Groups of which nothing is left."),
    Metric("dropped/turns_ratio", "Turns of the dropped to those of the kept: 1.0 is no bias. Absent without both."),
    Metric("dropped/tokens_ratio", "The same of tokens."),
    Metric("dropped/seconds_ratio", "The same of seconds."),
    Metric("dropped/fraction/<environment>", "As `dropped/fraction`, of each environment where there are several."),
)
"""Those of the bias report, which an engine adds: whether what is left out is like what is kept."""

HEDGE_METRICS = (
    Metric("hedges", "Calls that were made a second time, elsewhere."),
    Metric("hedges_won", "How often the second was the first to answer."),
    Metric("hedge_mismatches", "How often the two sessions did not give the same."),
)
"""Those of hedging, which an engine adds where it hedged."""
