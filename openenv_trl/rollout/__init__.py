"""Rollouts: many episodes at once over a pool of sessions, every token exact."""

from openenv_trl.rollout.actions import (
    ActionInterface,
    ParsedTurn,
    TextActions,
    ToolActions,
    ToolCall,
)
from openenv_trl.rollout.batching import BatchSettings
from openenv_trl.rollout.bias_report import BiasReport
from openenv_trl.rollout.conversation import Conversation, Heard, TokenConversation, TokenRecord
from openenv_trl.rollout.dialogue import Dialogue
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.engine import RolloutEngine
from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.rollout.metrics import rollout_metrics
from openenv_trl.rollout.observation import observation_text
from openenv_trl.rollout.policy import Completion, FailedCompletion, Policy, SamplingParameters
from openenv_trl.rollout.scripted import RandomActionPolicy, ScriptedPolicy
from openenv_trl.rollout.store import read_parquet, write_parquet
from openenv_trl.rollout.strategies import (
    CutStragglers,
    HedgeSlowCalls,
    NoOverSampling,
    NoRefill,
    NoRetry,
    OverSampleGroups,
    RefillGroups,
    RetryWithBackOff,
    RolloutStrategies,
    ToolErrorRule,
    WaitForStragglers,
)
from openenv_trl.rollout.task import Message, Task
from openenv_trl.rollout.tool_schema import tools_from_schema
from openenv_trl.rollout.trajectory import EndReason, Trajectory, TrajectoryRow, Turn
from openenv_trl.rollout.trajectory_writer import TrajectoryWriter

__all__ = [
    "ActionInterface",
    "BatchSettings",
    "BiasReport",
    "Completion",
    "Conversation",
    "CutStragglers",
    "Dialogue",
    "DialogueTemplate",
    "EndReason",
    "FailedCompletion",
    "Heard",
    "HedgeSlowCalls",
    "Message",
    "NoOverSampling",
    "NoRefill",
    "NoRetry",
    "OverSampleGroups",
    "ParsedTurn",
    "Policy",
    "RandomActionPolicy",
    "RefillGroups",
    "RetryWithBackOff",
    "RolloutEngine",
    "RolloutLimits",
    "RolloutStrategies",
    "SamplingParameters",
    "ScriptedPolicy",
    "Task",
    "TextActions",
    "TokenConversation",
    "TokenRecord",
    "ToolActions",
    "ToolCall",
    "ToolErrorRule",
    "Trajectory",
    "TrajectoryRow",
    "TrajectoryWriter",
    "Turn",
    "WaitForStragglers",
    "observation_text",
    "read_parquet",
    "rollout_metrics",
    "tools_from_schema",
    "write_parquet",
]
