"""What is done when an episode fails or is slow: small objects of settings, named in YAML by their ``type``."""

from openenv_trl.rollout.strategies.hedge import HedgeSlowCalls
from openenv_trl.rollout.strategies.over_sampling import NoOverSampling, OverSampleGroups
from openenv_trl.rollout.strategies.refill import NoRefill, RefillGroups
from openenv_trl.rollout.strategies.retry import NoRetry, RetryWithBackOff
from openenv_trl.rollout.strategies.settings import RolloutStrategies
from openenv_trl.rollout.strategies.straggler import CutStragglers, WaitForStragglers
from openenv_trl.rollout.strategies.tool_errors import ToolErrorRule

__all__ = [
    "CutStragglers",
    "HedgeSlowCalls",
    "NoOverSampling",
    "NoRefill",
    "NoRetry",
    "OverSampleGroups",
    "RefillGroups",
    "RetryWithBackOff",
    "RolloutStrategies",
    "ToolErrorRule",
    "WaitForStragglers",
]
