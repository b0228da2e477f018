"""What an environment's result says: its text, its reward, its end; or why the attempt failed.

Environments may be anyone's code, in any language: whatever a result holds, reading it gives an `Answer` or raises
`EpisodeFailed`, and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from openenv_trl.plain_numbers import plain_number
from openenv_trl.rollout.failures import EpisodeFailed
from openenv_trl.rollout.observation import observation_text
from openenv_trl.rollout.observation_cut import Cut
from openenv_trl.rollout.strategies.tool_errors import MODELS_FAULT, ToolErrorRule, tool_error
from openenv_trl.rollout.text_rules import TextRules
from openenv_trl.rollout.trajectory import EndReason
from openenv_trl.wire.observations import lost_reward


@dataclass(frozen=True)
class Answer:
    """An environment's result, as the episode goes on with it.

    Attributes:
        text: What the model is shown.
        reward: Of the step; None where there is none.
        done: Whether the episode has ended.
        truncated: Whether a limit of the environment's ended it.
        tokens_cut: Tokens of the text that were cut off.
        marks_broken: Marks of control tokens in the text that were broken.
        is_mistake: Whether it tells of a mistake of the model's: a tool that is not there, or wrong arguments for one.
    """

    text: str
    reward: float | None
    done: bool
    truncated: bool
    tokens_cut: int
    marks_broken: int
    is_mistake: bool = False


def read_result(
    result: Any,
    phase: str,
    rules: TextRules,
    *,
    max_tokens: int | None,
    earlier_rewards: list[float | None],
    tool_errors: ToolErrorRule = ToolErrorRule(),
    cut: Cut = "tail",
) -> Answer:
    """Read a result.

    Args:
        result: What the session gave: a `StepResult`, it says.
        phase: The call: "reset" or "step".
        rules: Make the text fit to be read.
        max_tokens: Of the text; None never cuts it.
        earlier_rewards: Those of the episode so far.
        tool_errors: Which failed tool calls are no answer to the model.
        cut: What is left out of a text that is longer.

    Raises:
        EpisodeFailed: The result is not what it must be, or tells of a failure that the model did not cause.
    """
    try:
        return _read(result, phase, rules, max_tokens, earlier_rewards, tool_errors, cut)
    except EpisodeFailed:
        raise
    except Exception as error:  # boundary: a session in this process may hand over any object
        text = f"{phase}: the result could not be read: {type(error).__name__}: {error}"
        raise EpisodeFailed(EndReason.PROTOCOL_ERROR, text) from error


def done_at_once(answer: Answer) -> EpisodeFailed:
    """Why an attempt failed whose reset brought the end of its episode.

    Another attempt may find a beginning, but not where the environment says that it was cut short (``truncated``):
    there was one, and it is over, such as a match that the other side has left.
    """
    text = "reset: the environment was done before the first step"
    if not answer.truncated:
        return EpisodeFailed(EndReason.ENVIRONMENT_ERROR, text)
    return EpisodeFailed(EndReason.ENVIRONMENT_ERROR, f"{text}: {answer.text:.200}", is_final=True)


def _read(
    result: Any,
    phase: str,
    rules: TextRules,
    max_tokens: int | None,
    earlier: list[float | None],
    tool_errors: ToolErrorRule,
    cut: Cut,
) -> Answer:
    observation: Any = result.observation
    if not isinstance(observation, dict):
        kind = type(observation).__name__
        raise EpisodeFailed(EndReason.PROTOCOL_ERROR, f"{phase}: the observation is a {kind}, not a dict")
    failed_call = tool_error(cast("dict[str, Any]", observation))
    if failed_call is not None and failed_call[0] in tool_errors.fail_on:
        raise EpisodeFailed(EndReason.TOOL_FAILED, f"{phase}: {': '.join(failed_call)}")
    metadata: Any = result.metadata or cast("dict[str, Any]", observation).get("metadata")
    truncated = isinstance(metadata, dict) and bool(cast("dict[str, Any]", metadata).get("truncated"))
    text, marks_broken = rules.defuse(observation_text(observation))
    tokens_cut = 0
    if max_tokens is not None:
        text, tokens_cut = rules.shorten(text, max_tokens, cut)
        text, _ = rules.defuse(text)  # the cut text was decoded: not every tokenizer gives back what it took
    done = bool(result.done)
    reward = _reward(result.reward, done, earlier, lost_reward(metadata)) if phase == "step" else None
    is_mistake = failed_call is not None and failed_call[0] in MODELS_FAULT
    return Answer(text, reward, done, truncated, tokens_cut, marks_broken, is_mistake)


def _reward(reward: Any, done: bool, earlier: list[float | None], lost: str | None) -> float | None:
    given = [value for value in earlier if value is not None]
    if reward is None and lost is not None:
        raise EpisodeFailed(EndReason.INVALID_REWARD, f"step: the reward is {lost}, which arrives as null")
    if reward is None:
        if done and given:
            raise EpisodeFailed(
                EndReason.INVALID_REWARD,
                "step: the last reward is missing though earlier ones were given; other servers than this package's "
                "send NaN and infinity as null",
            )
        return None
    plain = plain_number(reward)  # an environment in this process may give those of numpy and torch
    if plain is None:
        raise EpisodeFailed(EndReason.PROTOCOL_ERROR, f"step: the reward is no number but {reward!r:.80}")
    try:
        number = float(plain)
    except OverflowError:
        text = "step: the reward is an integer beyond the range of floats"
        raise EpisodeFailed(EndReason.INVALID_REWARD, text) from None
    if not math.isfinite(number):
        raise EpisodeFailed(EndReason.INVALID_REWARD, f"step: the reward is {number}")
    if not math.isfinite(sum(given) + number):
        raise EpisodeFailed(EndReason.INVALID_REWARD, "step: the sum of the rewards is beyond the range of floats")
    return number
