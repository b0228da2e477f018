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
from openenv_trl.rollout.groups import ScaleRewards, TrajectoryGroup, group_trajectories, total_reward
from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.rollout.metrics import rollout_metrics
from openenv_trl.rollout.observation import observation_text
from openenv_trl.rollout.observer import Observers, Phase, RolloutObserver
from openenv_trl.rollout.policy import (
    Completion,
    FailedCompletion,
    MessagePolicy,
    Policy,
    Reply,
    SamplingParameters,
)
from openenv_trl.rollout.replay import Difference, Replay, ReplayOutcome, replay_all
from openenv_trl.rollout.scripted import (
    RandomActionPolicy,
    RandomMessagePolicy,
    ScriptedMessagePolicy,
    ScriptedPolicy,
)
from openenv_trl.rollout.servers import ProvidedServers, Servers, provided_servers
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
    "Difference",
    "EndReason",
    "FailedCompletion",
    "Heard",
    "HedgeSlowCalls",
    "Message",
    "MessagePolicy",
    "NoOverSampling",
    "NoRefill",
    "NoRetry",
    "Observers",
    "OverSampleGroups",
    "ParsedTurn",
    "Phase",
    "Policy",
    "ProvidedServers",
    "RandomActionPolicy",
    "RandomMessagePolicy",
    "RefillGroups",
    "Replay",
    "ReplayOutcome",
    "Reply",
    "RetryWithBackOff",
    "RolloutEngine",
    "RolloutLimits",
    "RolloutObserver",
    "RolloutStrategies",
    "SamplingParameters",
    "ScaleRewards",
    "ScriptedMessagePolicy",
    "ScriptedPolicy",
    "Servers",
    "Task",
    "TextActions",
    "TokenConversation",
    "TokenRecord",
    "ToolActions",
    "ToolCall",
    "ToolErrorRule",
    "Trajectory",
    "TrajectoryGroup",
    "TrajectoryRow",
    "TrajectoryWriter",
    "Turn",
    "WaitForStragglers",
    "group_trajectories",
    "observation_text",
    "provided_servers",
    "read_parquet",
    "replay_all",
    "rollout_metrics",
    "tools_from_schema",
    "total_reward",
    "write_parquet",
]
