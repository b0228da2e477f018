"""The public package's own rollout function, run by its interpreter; the model is asked over standard input and output.

Lines of JSON: this process writes ``{"messages": [...]}`` for each turn and reads what the model wrote, and at the end
writes the rows that it would give to TRL.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from openenv.core.harness import (
    HarnessRunLimits,
    MCPHarnessAdapter,
    ResourceSession,
    ResourceSessionFactory,
    VerifyResult,
    build_harness_rollout_func,
)
from openenv.core.harness.rollout import ModelStepResult, ToolResult
from openenv.core.llm_client import LLMResponse, ToolCall


class Session(ResourceSession):
    """An environment that answers each call with a text, and is done at the last turn."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task, self.steps = task, 0

    def initial_messages(self) -> list[Any]:
        return list(self.task["messages"])

    def list_tools(self) -> list[Any]:
        return []

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        text = self.task["answers"][self.steps]
        self.steps += 1
        return ToolResult(data=text, done=self.steps == self.task["turns"])

    def verify(self, transcript: Any, final_state: Any = None) -> VerifyResult:
        return VerifyResult(env_reward=1.0, done=True)

    def close(self) -> None:
        pass


class Factory(ResourceSessionFactory):
    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> Session:
        return Session(task)


def ask(messages: list[Any], tools: Any, sampling: Any) -> ModelStepResult:
    print(json.dumps({"messages": messages}), flush=True)
    said = json.loads(sys.stdin.readline())
    calls = [ToolCall("call00000", call["name"], call["arguments"]) for call in said["calls"]]
    return ModelStepResult(
        LLMResponse(said["content"], calls), said["prompt_ids"], said["completion_ids"], said["logprobs"]
    )


def main() -> None:
    tasks = json.loads(sys.stdin.readline())
    rollout = build_harness_rollout_func(
        session_factory=Factory(),
        harness_adapter=MCPHarnessAdapter(),
        model_step_builder=lambda trainer, session: ask,
        limits=HarnessRunLimits(max_turns=64),
    )
    rows = rollout(tasks, None)
    print(json.dumps({"rows": {name: rows[name] for name in ("prompt_ids", "completion_ids", "logprobs")}}))


if __name__ == "__main__":
    main()
