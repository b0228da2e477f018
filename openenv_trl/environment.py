"""The contract of an environment, and how its methods become tools.

A class keeps the contract by defining ``reset``, ``step`` and ``state``. Where waiting is cheap, or the work takes
microseconds, define ``reset_async`` and ``step_async`` too: they run on the server's event loop, without a thread.

Source: ``openenv.core.env_server.interfaces`` of the OpenEnv package, version 0.10.0, for names and behaviour.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, overload

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from openenv_trl.blocking import wait_for
from openenv_trl.errors import ActionValidationError, ConfigurationError, EnvironmentExecutionError
from openenv_trl.scoring import ScoredCall, has_scoring, install_scoring
from openenv_trl.types import Action, CallToolAction, EnvironmentMetadata, Observation, ServerMode, State, Tool
from openenv_trl.wire.tools import observation_of_tool

if TYPE_CHECKING:
    from openenv_trl.rubrics.rubric import Rubric
    from openenv_trl.transform import Transform

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
        EXECUTION: Where a server runs the class's code. "auto": asynchronous hooks on the event loop, all else in
            threads. "loop": all of it on the event loop, without a thread; for code that takes microseconds and never
            blocks, the constructor too. "thread": all of it in threads, asynchronous hooks too; for hooks that are
            asynchronous in name only. "process": each instance in a process of its own, which is killed with a call
            that passes its deadline; for code that computes for long, that may hang, or that is not safe in threads.
        REPEATABLE: Set True where an episode can be played again, in another instance, without harm: equal arguments of
            reset and equal actions give equal observations, and nothing outside the instance is changed. Rollouts may
            then ask a second session where one is slow.
        transform: What is done to every observation before it leaves, or None.
        rubric: What gives the reward of every step, or None. A server applies both, once for each call.
        server_mode: What the server is for that the environment was built by.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = False
    REQUIRES_SINGLE_THREAD_EXECUTOR: ClassVar[bool] = False
    EXECUTION: ClassVar[Literal["auto", "loop", "thread", "process"]] = "auto"

    TOOL_CALLS_ARE_STEPS: ClassVar[bool] = False
    """Whether ``step`` itself takes the actions that list and call tools (`MCPEnvironment`'s does)."""

    REPEATABLE: ClassVar[bool] = False

    # On the class too, since a subclass need not call __init__.
    transform: Transform[Any] | None = None
    rubric: Rubric | None = None
    server_mode: ServerMode = ServerMode.SIMULATION
    _scored_call: ScoredCall | None = None
    _is_scored: bool = False
    _execution: str | None = None

    def __init__(self, transform: Transform[Any] | None = None, rubric: Rubric | None = None) -> None:
        if transform is not None:
            self.transform = transform
        if rubric is not None:
            self.rubric = rubric

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

    def render_web(self, observation: dict[str, Any]) -> str | None:
        """How the debug page shows an observation, as HTML; None for its fields alone.

        The page shows the HTML in a frame in which no script runs and nothing is loaded: pictures are data URLs. Text
        that comes from elsewhere is escaped here (`html.escape`). Called after each reset and step where the class
        overrides it, and wherever the class's code runs; what it raises is shown, and ends nothing.

        Args:
            observation: The observation's fields as they travel, without ``reward`` and ``done``.
        """
        del observation
        return None

    def web_actions(self, observation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """Actions that the debug page offers as buttons: the label of each, and the action's fields.

        Args:
            observation: The observation's fields as they travel, without ``reward`` and ``done``.

        Example:
            >>> def web_actions(self, observation):
            ...     return [] if observation["over"] else [("Hit", {"move": "hit"}), ("Stand", {"move": "stand"})]
        """
        del observation
        return []

    def close(self) -> None:
        """Give back what the environment holds. The server calls it once, when the session ends."""

    def _apply_transform(self, observation: ObsT) -> ObsT:
        """Return the observation as the transform makes it. The server does it where a hook has not."""
        if self._scored_call is not None:
            self._scored_call.transformed = True
        return observation if self.transform is None else self.transform(observation)

    def _apply_rubric(self, action: ActT, observation: ObsT) -> float:
        """Return the rubric's score; 0.0 without a rubric. The server does it where a hook has not."""
        score = self._scored(action, observation)
        return wait_for(score, what="The rubric") if inspect.isawaitable(score) else score

    async def _apply_rubric_async(self, action: ActT, observation: ObsT) -> float:
        """Like `_apply_rubric`, for asynchronous hooks."""
        score = self._scored(action, observation)
        return await score if inspect.isawaitable(score) else score

    def _reset_rubric(self) -> None:
        """Have the rubric forget the last episode. The server does it where ``reset`` has not."""
        if self._scored_call is not None:
            self._scored_call.scored = True
        if self.rubric is not None:
            self.rubric.reset()

    async def _reset_rubric_async(self) -> None:
        """Like `_reset_rubric`, for asynchronous hooks."""
        self._reset_rubric()

    def _scored(self, action: ActT, observation: ObsT) -> Any:
        if self._scored_call is not None:
            self._scored_call.scored = True
        return 0.0 if self.rubric is None else self.rubric(action, observation)

    @property
    def _effective_execution(self) -> str:
        """Where this environment's hooks run: as its server says, or else its class (``EXECUTION``)."""
        return self._execution or self.EXECUTION

    def offered_tools(self) -> list[Tool]:
        """The tools that the agent has here and now: those of the class, where nothing else is defined."""
        return self.list_tools()

    def runs_on_loop(self, name: str) -> bool:
        """Whether the tool of that name is to be called on the event loop."""
        return name in self.async_tools()

    def step_may_block(self, action: Any) -> bool:
        """Whether this step, of a class that has `step_async`, should run as `step` in a thread all the same."""
        del action
        return False

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

    def tool_step(self, action: CallToolAction) -> Any:
        """Take the step that calls a tool: returns its observation, or an awaitable of it.

        Raises:
            ActionValidationError: No such tool, or arguments that do not fit it. The environment did not move.
            EnvironmentExecutionError: The tool was called, but its result cannot be sent.
        """
        value = self.call_tool(action.tool_name, action.arguments)
        return _observed_later(action, value) if inspect.isawaitable(value) else _observed(action, value)

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


def _observed(action: CallToolAction, value: Any) -> Observation:
    try:
        return observation_of_tool(action.tool_name, value)
    except TypeError as error:
        raise EnvironmentExecutionError(
            f"The tool '{action.tool_name}' was called, but its result cannot be sent: {error}", phase="step"
        ) from error


async def _observed_later(action: CallToolAction, value: Awaitable[Any]) -> Observation:
    return _observed(action, await value)


def prepare(
    environment: Environment[Any, Any, Any],
    mode: ServerMode = ServerMode.SIMULATION,
    execution: str | None = None,
) -> None:
    """Make an environment that was just built ready to be called by a server, and have it scored.

    Args:
        environment: The environment.
        mode: What the server is for.
        execution: Where its hooks will run; None for where its class says.
    """
    environment.server_mode = mode
    environment._execution = execution  # pyright: ignore[reportPrivateUsage]  # the other half of this module's class
    if has_scoring(environment):
        # The asynchronous hooks of Environment itself only call the others.
        own = type(environment)
        asynchronous = ("reset_async", "step_async")
        overridden = [name for name in asynchronous if getattr(own, name) is not getattr(Environment, name)]
        install_scoring(environment, ["reset", "step", "tool_step", *overridden])


def default_metadata(environment_class: type[Any]) -> EnvironmentMetadata:
    """What is said of an environment class that does not speak for itself."""
    name = environment_class.__name__
    return EnvironmentMetadata(name=name, description=f"{name} environment", version="1.0.0")
