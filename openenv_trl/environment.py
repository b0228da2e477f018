"""The contract of an environment, and how its methods become tools.

A class keeps the contract by defining ``reset``, ``step`` and ``state``. Where waiting is cheap, or the work takes
microseconds, define ``reset_async`` and ``step_async`` too: they run on the server's event loop, without a thread.

Source: ``openenv.core.env_server.interfaces`` of the OpenEnv package, version 0.10.0, for names and behaviour.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar, overload

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from openenv_trl.errors import ActionValidationError, ConfigurationError
from openenv_trl.types import Action, EnvironmentMetadata, Observation, State, Tool

ActT = TypeVar("ActT", bound=Action)
ObsT = TypeVar("ObsT", bound=Observation)
StateT = TypeVar("StateT", bound=State)
Method = TypeVar("Method", bound=Callable[..., Any])

RESERVED_TOOL_NAMES = frozenset({"reset", "step", "state", "close"})
"""Names that belong to the trainer's side of an environment and never to the agent's."""

_TOOL_MARK = "__openenv_tool__"


@overload
def tool(method: Method) -> Method: ...
@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[Method], Method]: ...
def tool(
    method: Method | None = None, *, name: str | None = None, description: str | None = None
) -> Method | Callable[[Method], Method]:
    """Mark a method of an `Environment` as a tool that its agent can call.

    The tool's arguments are the method's parameters, which all need type hints; its description is the docstring's
    first paragraph. The method returns an `Observation` (which may carry ``reward`` and ``done``).

    Args:
        method: The method, where the decorator is used without parentheses.
        name: The tool's name; the method's own if None.
        description: What the model reads; the docstring's first paragraph if None.

    Raises:
        ConfigurationError: The name is reserved, or a parameter has no type hint.

    Example:
        >>> class Game(Environment[Action, Observation, State]):
        ...     @tool
        ...     def guess(self, number: int) -> Observation:
        ...         "Guess the secret number."
    """

    def mark(function: Method) -> Method:
        tool_name = name or function.__name__
        if tool_name in RESERVED_TOOL_NAMES:
            raise ConfigurationError(
                f"'{tool_name}' is reserved: reset, step, state and close are the trainer's, never the agent's. "
                "Give the tool another name: @tool(name=...)."
            )
        text = description or inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        setattr(function, _TOOL_MARK, (tool_name, text))
        return function

    return mark if method is None else mark(method)


class _BoundTool:
    """A tool method with its argument model."""

    def __init__(self, attribute: str, name: str, description: str, function: Callable[..., Any]) -> None:
        self.attribute = attribute
        fields: dict[str, Any] = {}
        signature = inspect.signature(function, eval_str=True)
        for parameter in list(signature.parameters.values())[1:]:
            if parameter.annotation is inspect.Parameter.empty or parameter.kind in (
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
            ):
                raise ConfigurationError(
                    f"The tool '{name}' needs a type hint on each parameter, no *args or **kwargs: see '{parameter}'."
                )
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[parameter.name] = (parameter.annotation, default)
        self.arguments: type[BaseModel] = create_model(
            f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields
        )
        schema = self.arguments.model_json_schema()
        schema.pop("title", None)
        for field in schema.get("properties", {}).values():
            field.pop("title", None)
        self.tool = Tool(name=name, description=description, input_schema=schema)


class Environment(ABC, Generic[ActT, ObsT, StateT]):
    """One episode at a time of a task, as a server holds it for one session.

    Attributes:
        SUPPORTS_CONCURRENT_SESSIONS: Set True where instances share no state, so that a server may hold several.
        REQUIRES_SINGLE_THREAD_EXECUTOR: Set True where all instances must be used from one and the same thread.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = False
    REQUIRES_SINGLE_THREAD_EXECUTOR: ClassVar[bool] = False

    @abstractmethod
    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> ObsT:
        """Begin an episode.

        Args:
            seed: Decides all that is random in the episode; equal seeds and actions give equal observations.
            episode_id: A name for the episode; the environment makes one up if None.
            **kwargs: The task's own arguments, named in the signature of the subclass.
        """

    @abstractmethod
    def step(self, action: ActT, timeout_s: float | None = None, **kwargs: Any) -> ObsT:
        """Take one action and return what it brought, with ``reward`` and ``done`` set."""

    @property
    @abstractmethod
    def state(self) -> StateT:
        """Where the episode stands: its id and the number of steps taken."""

    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> ObsT:
        """Like `reset`, on the event loop. Override it only with code that does not block."""
        return self.reset(seed=seed, episode_id=episode_id, **kwargs)

    async def step_async(self, action: ActT, timeout_s: float | None = None, **kwargs: Any) -> ObsT:
        """Like `step`, on the event loop. Override it only with code that does not block."""
        return self.step(action, timeout_s=timeout_s, **kwargs)

    def get_metadata(self) -> EnvironmentMetadata:
        """What the environment says of itself: a name and a description at least."""
        return default_metadata(type(self))

    def close(self) -> None:
        """Give back what the environment holds. The server calls it once, when the session ends."""

    @classmethod
    def list_tools(cls) -> list[Tool]:
        """The tools that this class's methods were marked as, in the order they are defined."""
        return [bound.tool for bound in cls._bound_tools().values()]

    @classmethod
    def async_tools(cls) -> frozenset[str]:
        """The names of the tools whose methods are coroutine functions: they run on the server's event loop."""
        bound = cls._bound_tools().values()
        return frozenset(b.tool.name for b in bound if inspect.iscoroutinefunction(getattr(cls, b.attribute)))

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call the tool of that name: returns what its method returns (an awaitable where the method is async).

        Raises:
            ActionValidationError: No such tool, or arguments that do not fit it. The environment did not move.
        """
        tools = self._bound_tools()
        bound = tools.get(name)
        if bound is None:
            raise ActionValidationError(f"Unknown tool: '{name}'. This environment has: {', '.join(tools) or 'none'}.")
        try:
            values = bound.arguments.model_validate(arguments)
        except ValidationError as error:
            details = error.errors(include_url=False)
            text = "; ".join(f"{'.'.join(map(str, e['loc'])) or name}: {e['msg']}" for e in details)
            raise ActionValidationError(
                f"Wrong arguments for the tool '{name}': {text}", errors=[dict(e) for e in details]
            ) from error
        return getattr(self, bound.attribute)(**{key: getattr(values, key) for key in type(values).model_fields})

    @classmethod
    def _bound_tools(cls) -> dict[str, _BoundTool]:
        cached: dict[str, _BoundTool] | None = cls.__dict__.get("_bound_tools_cache")
        if cached is None:
            cached = {}
            for base in reversed(cls.__mro__):
                for attribute, function in vars(base).items():
                    mark = getattr(function, _TOOL_MARK, None)
                    if mark is not None:
                        cached[mark[0]] = _BoundTool(attribute, mark[0], mark[1], getattr(cls, attribute))
            cls._bound_tools_cache = cached
        return cached


def default_metadata(environment_class: type[Any]) -> EnvironmentMetadata:
    """What is said of an environment class that does not speak for itself."""
    name = environment_class.__name__
    return EnvironmentMetadata(name=name, description=f"{name} environment", version="1.0.0")
