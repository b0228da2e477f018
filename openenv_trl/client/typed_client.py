"""A client of an environment with types of its own, whose agent acts by a typed action or by tools.

Promises: whatever form an action has (typed, a call of a tool, the data of either), it is one step, and what comes back
has the environment's types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast

from openenv_trl.client.env_client import EnvClient
from openenv_trl.errors import ConfigurationError
from openenv_trl.types import Action, CallToolAction, Observation, State, StepResult

TypedActT = TypeVar("TypedActT", bound=Action)
TypedObsT = TypeVar("TypedObsT", bound=Observation)
TypedStateT = TypeVar("TypedStateT", bound=State)


class TypedEnvClient(
    EnvClient["TypedActT | CallToolAction | Mapping[str, Any]", TypedObsT, TypedStateT],
    Generic[TypedActT, TypedObsT, TypedStateT],
):
    """Base of an environment's client: name its three types, and it is whole.

    Attributes:
        ACTION: The typed action.
        OBSERVATION: What reset and steps return.
        STATE: What `state` returns.

    Example:
        >>> class GuessingEnv(TypedEnvClient[Guess, Hint, State]):
        ...     ACTION, OBSERVATION, STATE = Guess, Hint, State
    """

    ACTION: ClassVar[type[Action]]
    OBSERVATION: ClassVar[type[Observation]]
    STATE: ClassVar[type[State]] = State

    async def call_tool(
        self, tool_name: str, arguments: Mapping[str, Any] | None = None, /, **named: Any
    ) -> StepResult[TypedObsT]:
        """Take a step by a tool, as ``step(CallToolAction(...))`` does: reward and end are in what it returns.

        Args:
            tool_name: The tool.
            arguments: Its arguments, as a mapping.
            named: Its arguments, by name.

        Raises:
            OpenEnvError: As `EnvClient.step`.
        """
        return await self.step(CallToolAction(tool_name=tool_name, arguments={**(arguments or {}), **named}))

    def _step_payload(self, action: TypedActT | CallToolAction | Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(action, (self.ACTION, CallToolAction)):
            return action.model_dump(exclude={"metadata"})
        if isinstance(cast("object", action), Mapping):
            return dict(cast("Mapping[str, Any]", action))
        name = self.ACTION.__name__
        raise ConfigurationError(
            f"An action must be {'an' if name[0] in 'AEIO' else 'a'} {name}, a CallToolAction or a mapping, not "
            f"{type(action).__name__}."
        )

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[TypedObsT]:
        done, reward = bool(payload.get("done", False)), payload.get("reward")
        # Some servers name done and reward in the observation too.
        fields: dict[str, Any] = {**payload["observation"], "done": done, "reward": reward}
        observation = cast("TypedObsT", self.OBSERVATION.model_validate(fields))
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> TypedStateT:
        return cast("TypedStateT", self.STATE.model_validate(payload))
