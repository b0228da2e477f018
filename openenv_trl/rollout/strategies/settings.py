"""All strategies of a run in one object."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from openenv_trl.rollout.strategies.hedge import HedgeSlowCalls
from openenv_trl.rollout.strategies.over_sampling import NoOverSampling, OverSampleGroups
from openenv_trl.rollout.strategies.refill import NoRefill, RefillGroups
from openenv_trl.rollout.strategies.retry import NoRetry, RetryWithBackOff
from openenv_trl.rollout.strategies.straggler import CutStragglers, WaitForStragglers
from openenv_trl.rollout.strategies.tool_errors import ToolErrorRule


class RolloutStrategies(BaseModel):
    """What is done when an episode fails or is slow. Each field is one object, which a YAML file names by its ``type``.

    Example:
        >>> RolloutStrategies.model_validate({"straggler": {"type": "cut", "grace_s": 20}, "refill": {"type": "fresh"}})
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    retry: Annotated[NoRetry | RetryWithBackOff, Field(discriminator="type")] = RetryWithBackOff()
    """Of a failed episode, in a fresh session. On, since most failures are of one session."""
    straggler: Annotated[WaitForStragglers | CutStragglers | HedgeSlowCalls, Field(discriminator="type")] = (
        WaitForStragglers()
    )
    """About the slowest. Waiting, since the other two have a price: a bias, or double work."""
    over_sampling: Annotated[NoOverSampling | OverSampleGroups, Field(discriminator="type")] = NoOverSampling()
    """Of groups. None, since it costs generations."""
    refill: Annotated[NoRefill | RefillGroups, Field(discriminator="type")] = NoRefill()
    """Of episodes that failed for good. None: the group goes on without them."""
    tool_errors: ToolErrorRule = ToolErrorRule()
    """Which failed tool calls are not the model's business."""
