"""How far one episode may go, in turns, tokens and seconds, and how often it is tried."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from openenv_trl.rollout.observation_cut import Cut


class RolloutLimits(BaseModel):
    """The limits of every episode of a run. Seconds are wall-clock seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_turns: int = Field(default=16, ge=1)
    """Messages of the model in one episode. A weak model calls tools for ever; sixteen is enough for most
    small games."""
    max_completion_tokens: int = Field(default=512, ge=1)
    """Tokens after the prompt, the model's and the environment's together: what TRL calls
    ``max_completion_length``, and with TRL's default."""
    max_new_tokens_per_turn: int | None = Field(default=None, ge=1)
    """Tokens of one message of the model; None leaves it all that remains of ``max_completion_tokens``. A
    message cut by this limit ends the episode, since half a tool call is none."""
    max_invalid_actions: int = Field(default=2, ge=0)
    """Invalid actions (broken JSON, unknown tool, wrong arguments) that the model may correct in one episode;
    one more ends it. Two leave room to learn from the error, and do not fill the context with errors."""
    max_observation_tokens: int | None = Field(default=None, ge=1)
    """Tokens of one observation; what is longer is cut, says so in the text, and is counted. None never
    cuts."""
    observation_cut: Cut = "tail"
    """What is left out of an observation that is too long: its ``"tail"`` (as TRL's tools and most readers of documents
    do), its ``"head"`` (right for logs, whose end matters), or its ``"middle"`` (right for a program's output)."""
    connect_timeout_s: float = Field(default=300.0, gt=0)
    """Seconds to wait for a free session, of each attempt. Long, because to wait for one's turn is no
    failure."""
    reset_timeout_s: float = Field(default=60.0, gt=0)
    """Seconds that ``reset`` may take. Loading a task can be slow; a minute is not."""
    step_timeout_s: float = Field(default=60.0, gt=0)
    """Seconds that one ``step`` may take. Running the tests of a small program fits in."""
    generate_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds that one message of the model may take, waiting for its batch included; the episode then ends with
    ``GENERATE_TIMEOUT``, and its place in the batch is free. None: the episode's own limit suffices, as where a
    trainer generates in this process and cannot be hurried."""
    episode_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds from the first session of an episode to its end, over all attempts, waiting for the policy
    included."""
    batch_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds of a whole run; episodes unfinished then end with ``BATCH_TIMEOUT``. None: the other limits
    suffice."""
    max_attempts: int = Field(default=3, ge=1)
    """Tries of one episode at most, each in a fresh session, when the environment fails: `RolloutStrategies.retry` says
    after which failures. Once may be chance; three times is not."""
    max_generation_attempts: int = Field(default=3, ge=1)
    """Tries of one message of the model, when the policy says that this prompt alone failed."""
    retry_delay_s: float = Field(default=0.5, ge=0)
    """Seconds before the second try, doubled before each later one and shortened by chance: a server that restarts
    needs a moment."""
