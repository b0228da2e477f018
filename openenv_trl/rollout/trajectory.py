"""What an episode brought back: exact token ids, loss mask, log-probs, turns, rewards, and how it ended.

A trajectory is either *played* (the environment or the model ended it, or a limit of turns or tokens did) or
*failed* (something broke or took too long). A failed one has no reward: there is nothing to learn from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from openenv_trl.rollout.sampling_record import SampledTurn, count_drift
from openenv_trl.rollout.segments import Segment
from openenv_trl.rollout.task import Message, Task

if TYPE_CHECKING:
    from openenv_trl.rollout.replay import Replay


class EndReason(str, Enum):
    """Why an episode ended."""

    DONE = "done"
    """The environment said so."""
    TRUNCATED = "truncated"
    """The environment said so, because of a limit of its own (``metadata["truncated"]``)."""
    NO_ACTION = "no_action"
    """The model answered without an action."""
    INVALID_ACTION = "invalid_action"
    """The model made more invalid actions than the limits allow."""
    MAX_TURNS = "max_turns"
    """The limit of turns was reached."""
    MAX_TOKENS = "max_tokens"
    """The limit of tokens was reached, or a message of the model was cut by a limit."""

    CONNECT_FAILED = "connect_failed"
    """No server answered."""
    CREATION_FAILED = "creation_failed"
    """A server could not build the environment for a session."""
    CAPACITY = "capacity"
    """No session became free in time."""
    RESET_TIMEOUT = "reset_timeout"
    """The environment's reset took longer than its deadline."""
    STEP_TIMEOUT = "step_timeout"
    """A step took longer than its deadline."""
    EPISODE_TIMEOUT = "episode_timeout"
    """The episode, with all its attempts, took longer than its deadline."""
    BATCH_TIMEOUT = "batch_timeout"
    """The whole run reached its deadline."""
    SESSION_LOST = "session_lost"
    """The session's connection ended."""
    ENVIRONMENT_ERROR = "environment_error"
    """The environment raised."""
    CONFIGURATION_ERROR = "configuration_error"
    """The environment said that it cannot do what it was asked, such as a reset to a task that there is not."""
    INVALID_REWARD = "invalid_reward"
    """The environment gave a reward that is no finite number."""
    PROTOCOL_ERROR = "protocol_error"
    """The server sent something that is not the protocol, or a result of the wrong shape."""
    TOOL_FAILED = "tool_failed"
    """A tool of the environment failed by no fault of the model's: it took too long, or could not be reached."""
    GENERATION_FAILED = "generation_failed"
    """The policy could not complete this episode's prompt, also when it was tried again."""
    GENERATE_TIMEOUT = "generate_timeout"
    """A message of the model took longer than its deadline."""
    STRAGGLER = "straggler"
    """Cut, since most of the batch had ended and was not to wait any longer."""
    SURPLUS = "surplus"
    """Played beyond what the group needed, and left out or cut when the group was full."""

    @property
    def is_failure(self) -> bool:
        """Whether the episode broke; its reward is then None and nothing is learned from it."""
        return self not in _PLAYED

    @property
    def is_unfinished(self) -> bool:
        """Whether the model, not the environment, left the episode without an end."""
        return self in _UNFINISHED


_UNFINISHED = frozenset({EndReason.NO_ACTION, EndReason.INVALID_ACTION, EndReason.MAX_TURNS, EndReason.MAX_TOKENS})
_PLAYED = _UNFINISHED | {EndReason.DONE, EndReason.TRUNCATED}


@dataclass
class Turn:
    """One message of the model and what it brought.

    Attributes:
        text: What the model wrote, decoded for people; never encoded again.
        actions: The actions taken, in order: what went out as ``step``.
        observations: The texts that came back, one an action or problem.
        problems: What was wrong with invalid actions, as shown to the model.
        problem_places: The place in ``observations`` of each problem.
        rewards: The reward of each action taken; None where the environment gave none.
        done: Whether the environment ended the episode in this turn.
        completion_tokens: Tokens that the model wrote.
        generate_s: Seconds from asking the policy to having the completion, waiting for the batch included.
        environment_s: Seconds in ``step``.
        truncated_observation_tokens: Tokens cut off the observations by ``max_observation_tokens``.
        mistaken_calls: Actions taken that the environment answered with a mistake of the model's, such as wrong
            arguments for a tool.
    """

    text: str = ""
    actions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    observations: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])
    problem_places: list[int] = field(default_factory=list[int])
    rewards: list[float | None] = field(default_factory=list[float | None])
    done: bool = False
    completion_tokens: int = 0
    generate_s: float = 0.0
    environment_s: float = 0.0
    truncated_observation_tokens: int = 0
    mistaken_calls: int = 0

    @property
    def action_observations(self) -> list[str]:
        """The text that each action brought, one an action: the observations without the problems."""
        places = set(self.problem_places)
        return [text for place, text in enumerate(self.observations) if place not in places]


@dataclass(repr=False)
class Trajectory:
    """One episode, as it was played.

    ``completion_ids``, ``mask`` and (where there are any) ``logprobs`` are always equally long.

    Attributes:
        task: The task that was played.
        prompt_ids: Ids of the rendered prompt, first observation included.
        completion_ids: Everything after it: the model's ids as sampled, the environment's as rendered.
        mask: 1 where the model sampled the id, 0 where the environment wrote it.
        logprobs: The sampler's log-prob of each id, 0.0 where the mask is 0; None if the policy gives none.
        turns: The model's messages with their actions, observations, rewards and times.
        end_reason: Why it ended.
        error: What went wrong, in words, where something did.
        attempts: How many sessions it took; 1 if nothing failed.
        first_observation: The text of the observation after reset.
        base_url: The server of the last attempt.
        started_s: Seconds from the run's start to this episode's.
        ended_s: Seconds from the run's start to this episode's end.
        waiting_s: Seconds spent waiting for sessions, all attempts together.
        reset_s: Seconds in the last attempt's ``reset``.
        messages: The conversation for people to read (and for TRL's logs); never encoded.
        marks_broken: Marks of control tokens, such as ``<|im_end|>``, that the environment's texts held, and that
            were broken so that they stayed text.
        token_exact: Whether the ids are those that were sampled. False for a policy that takes and gives messages:
            there are no ids then, and nothing to train on.
        versions: Which weights sampled what: pairs of the place in ``completion_ids`` where a version begins, and its
            number. Empty where the policy does not tell.
        environment: The environment's name in a run of several; "" where there is one.
        rewards: The reward by each source: reward functions and their parts, by name. Filled when they have been
            called.
        failures: How the attempts before the last one failed, in words.
        sampled: Fingerprints of what was sampled in which context; not stored in files.
        earlier: Messages before the last one, where their thoughts were left out of later contexts
            (``thoughts="template"``): the ids here are then those of the last one. Not stored in files.
    """

    task: Task
    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float] | None
    turns: list[Turn]
    end_reason: EndReason
    error: str | None = None
    attempts: int = 1
    first_observation: str = ""
    base_url: str = ""
    started_s: float = 0.0
    ended_s: float = 0.0
    waiting_s: float = 0.0
    reset_s: float = 0.0
    messages: list[Message] = field(default_factory=list[Message])
    marks_broken: int = 0
    token_exact: bool = True
    versions: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    environment: str = ""
    rewards: dict[str, float | None] = field(default_factory=dict[str, "float | None"])
    failures: list[str] = field(default_factory=list[str])
    sampled: list[SampledTurn] = field(default_factory=list[SampledTurn], compare=False)
    earlier: list[Segment] = field(default_factory=list[Segment], compare=False)

    def __repr__(self) -> str:
        # Short: warnings of trainers print whole columns of trajectories.
        return (
            f"Trajectory({self.end_reason.value}, reward={self.reward}, turns={len(self.turns)}, "
            f"tokens={len(self.completion_ids)})"
        )

    @property
    def seed(self) -> int | None:
        """The seed that the environment was reset with; None without one."""
        return self.task.reset.get("seed")

    @property
    def step_rewards(self) -> list[float | None]:
        """The reward of each action taken, in order; None where the environment gave none."""
        return [reward for turn in self.turns for reward in turn.rewards]

    @property
    def reward(self) -> float | None:
        """The sum of the step rewards.

        None where the episode failed, and where actions were taken and the environment rewarded none of them:
        an invented 0.0 would be compared with real rewards.
        """
        if self.end_reason.is_failure:
            return None
        rewards = self.step_rewards
        given = [reward for reward in rewards if reward is not None]
        return None if rewards and not given else sum(given)

    @property
    def drift(self) -> int:
        """How many messages of the model do not stand here as they were sampled, in the context in which they were.

        0 is the promise; more means a policy that samples in another context than it was given, or code that changed
        the ids. 0 also where nothing is known of the sampling: in trajectories that were read from files.
        """
        earlier = sum(segment.drift for segment in self.earlier)
        if not self.sampled:
            return earlier
        return earlier + count_drift(self.sampled, self.prompt_ids, self.completion_ids, self.mask, self.logprobs)

    @property
    def generate_s(self) -> float:
        """Seconds spent waiting for the policy."""
        return sum(turn.generate_s for turn in self.turns)

    @property
    def environment_s(self) -> float:
        """Seconds spent in the environment's ``step``."""
        return sum(turn.environment_s for turn in self.turns)

    @property
    def invalid_actions(self) -> int:
        """How many actions were invalid, by their form or in the environment's eyes."""
        return sum(len(turn.problems) + turn.mistaken_calls for turn in self.turns)

    async def replay(self, pool: Any, **settings: Any) -> Replay:
        """Play the very actions again in a session of the pool, and report the first difference.

        See `openenv_trl.rollout.replay.replay`, which takes the same arguments.
        """
        from openenv_trl.rollout.replay import replay  # it needs this module

        return await replay(self, pool, **settings)

    def as_row(self, filler_id: int) -> TrajectoryRow:
        """The tokens as a trainer takes them: never empty, and masked out entirely where the episode failed.

        Where the thoughts of earlier messages were left out, this is the row of the last message alone: see `as_rows`.

        Args:
            filler_id: The id that stands in where there is no token to give (the tokenizer's end or padding
                id).
        """
        prompt_ids = self.prompt_ids or [filler_id]
        if self.end_reason.is_failure or not self.completion_ids:
            return TrajectoryRow(prompt_ids, [filler_id], [0], None if self.logprobs is None else [0.0])
        return TrajectoryRow(prompt_ids, self.completion_ids, self.mask, self.logprobs)

    def as_rows(self, filler_id: int) -> list[TrajectoryRow]:
        """All rows of the episode, for a trainer that takes several: one, but where earlier thoughts were left out.

        Args:
            filler_id: As for `as_row`.
        """
        earlier = [] if self.end_reason.is_failure else self.earlier
        rows = [TrajectoryRow(each.prompt_ids, each.completion_ids, each.mask, each.logprobs) for each in earlier]
        return [*rows, self.as_row(filler_id)]


@dataclass(frozen=True)
class TrajectoryRow:
    """The tokens of one trajectory, ready for a trainer; all but the prompt equally long."""

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float] | None
