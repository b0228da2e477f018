"""What the server must know of an environment class before it can call it: read once, kept for all its instances."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from openenv_trl.environment import Environment
from openenv_trl.server.settings import Execution

AnyEnvironment = Environment[Any, Any, Any]
EnvironmentFactory = Callable[[], AnyEnvironment]


@dataclass(frozen=True)
class Hooks:
    """How one environment class wants to be called.

    Attributes:
        name: The class's name.
        execution: Where the class wants its hooks to run.
        single_thread: Whether all instances must be used from one and the same thread.
        async_reset: Whether the class overrides ``reset_async``, to be awaited on the event loop.
        async_step: Whether the class overrides ``step_async``. Its ``state`` is then read on the event loop too.
        reset_arguments: Names that ``reset`` takes; None if it takes any.
        step_arguments: Names that ``step`` takes beside the action; None if it takes any.
        has_tools: Whether methods are marked as tools.
        async_tools: Names of the tools that are coroutine functions.
        tool_calls_are_steps: Whether ``step`` itself takes the actions that list and call tools.
        renders_web: Whether the class overrides ``render_web``.
        has_web_actions: Whether the class overrides ``web_actions``.
    """

    name: str
    execution: Execution
    single_thread: bool
    async_reset: bool
    async_step: bool
    reset_arguments: frozenset[str] | None
    step_arguments: frozenset[str] | None
    has_tools: bool
    async_tools: frozenset[str]
    tool_calls_are_steps: bool
    renders_web: bool
    has_web_actions: bool

    def taken_by_step(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return those of the arguments that ``step`` takes beside the action."""
        known = self.step_arguments
        return {
            name: value for name, value in arguments.items() if name != "action" and (known is None or name in known)
        }


@functools.lru_cache(maxsize=256)
def hooks_of(environment_class: type[AnyEnvironment]) -> Hooks:
    """Return how instances of the class are called."""
    async_reset = environment_class.reset_async is not AnyEnvironment.reset_async
    async_step = environment_class.step_async is not AnyEnvironment.step_async
    return Hooks(
        name=environment_class.__name__,
        execution=environment_class.EXECUTION,
        single_thread=environment_class.REQUIRES_SINGLE_THREAD_EXECUTOR,
        async_reset=async_reset,
        async_step=async_step,
        reset_arguments=_accepted(environment_class.reset_async if async_reset else environment_class.reset),
        step_arguments=_accepted(environment_class.step_async if async_step else environment_class.step),
        has_tools=bool(environment_class.list_tools()),
        async_tools=environment_class.async_tools(),
        tool_calls_are_steps=environment_class.TOOL_CALLS_ARE_STEPS,
        renders_web=environment_class.render_web is not AnyEnvironment.render_web,
        has_web_actions=environment_class.web_actions is not AnyEnvironment.web_actions,
    )


def class_behind(factory: Callable[[], Any]) -> type[AnyEnvironment] | None:
    """Return the environment class where the factory is one, perhaps with arguments bound; else None."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    if isinstance(factory, type) and issubclass(factory, Environment):
        return cast("type[AnyEnvironment]", factory)
    return None


def is_repeatable(factory: Callable[[], Any]) -> bool:
    """Return whether episodes can be played again: as the class declares, or a function by an attribute."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    return getattr(factory, "REPEATABLE", False) is True


def factory_name(factory: Callable[[], Any]) -> str:
    """Return the name by which errors call the factory."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    return getattr(factory, "__name__", type(factory).__name__)


def _accepted(method: Callable[..., Any]) -> frozenset[str] | None:
    parameters = list(inspect.signature(method).parameters.values())[1:]
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(parameter.name for parameter in parameters if parameter.kind in kinds)
