"""What is checked: how to build fresh environments of it, and which types it says that it speaks."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import typing
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, cast

from openenv_trl.environment import Environment, prepare
from openenv_trl.errors import ConfigurationError
from openenv_trl.types import Action, CallToolAction, Observation, Tool

AnyEnvironment = Environment[Any, Any, Any]
Buildable = AnyEnvironment | type[AnyEnvironment] | Callable[[], AnyEnvironment]


_ACCEPTED = "check_environment takes an Environment, its class, or a function without arguments that returns one"


@dataclass(frozen=True)
class Subject:
    """An environment under check.

    Attributes:
        environment_cls: Its class.
        build: Makes a fresh environment, or returns the only one there is.
        single: Whether `build` returns one and the same environment every time.
        action_cls: What its steps take; None where only its tools act.
        observation_cls: What it shows; the base class where it does not say.
    """

    environment_cls: type[AnyEnvironment]
    build: Callable[[], AnyEnvironment]
    single: bool
    action_cls: type[Action] | None
    observation_cls: type[Observation]

    @property
    def name(self) -> str:
        """The class's name, as the findings call it."""
        return self.environment_cls.__name__

    @functools.cached_property
    def tools(self) -> list[Tool]:
        """The tools that its agent has."""
        if not self.environment_cls.TOOL_CALLS_ARE_STEPS:
            return self.environment_cls.list_tools()
        environment = self.build()
        try:
            return environment.offered_tools()
        finally:
            environment.close()

    def overrides(self, hook: str) -> bool:
        """Whether the class defines its own ``reset_async`` or ``step_async``, so that servers call that one."""
        return getattr(self.environment_cls, hook) is not getattr(Environment, hook)

    def served(self, hook: str) -> str:
        """The hook that a server calls for "reset" or "step": the asynchronous one where the class defines it."""
        return f"{hook}_async" if self.overrides(f"{hook}_async") else hook

    def accepted(self, hook: str) -> Collection[str] | None:
        """The names of the parameters of a hook; None where it takes any (``**kwargs``)."""
        parameters = inspect.signature(getattr(self.environment_cls, hook)).parameters
        if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
            return None
        return parameters.keys()


def subject_of(
    environment: Buildable, action_cls: type[Action] | None, observation_cls: type[Observation] | None
) -> Subject:
    """Find out how to build an environment, and its types where they were not named.

    An instance is copied deeply for each use, so that the caller's own is left as it is. One that cannot be copied
    is used itself.

    Raises:
        ConfigurationError: ``environment`` is neither an environment nor a class or function that makes one.
    """
    cls: type[AnyEnvironment]
    if isinstance(environment, Environment):
        instance = cast("AnyEnvironment", environment)
        cls = type(instance)
        build, single = _copies_of(instance)
    elif callable(environment):
        build, single = environment, False
        cls = _class_of(environment)
    else:
        raise ConfigurationError(f"{_ACCEPTED}; not {environment!r}.")

    def build_as_a_server_does() -> AnyEnvironment:
        built = build()
        if isinstance(cast("object", built), Environment):
            prepare(built)
        return built

    return Subject(
        environment_cls=cls,
        build=build_as_a_server_does,
        single=single,
        action_cls=action_cls
        or _declared(cls, 0, "step", "action", Action)
        or (CallToolAction if cls.TOOL_CALLS_ARE_STEPS else None),
        observation_cls=observation_cls or _declared(cls, 1, "reset", "return", Observation) or Observation,
    )


def _class_of(build: Callable[[], object]) -> type[AnyEnvironment]:
    """The class, or the class of what a function makes."""
    if isinstance(build, type) and issubclass(build, Environment):
        return cast("type[AnyEnvironment]", build)
    first = build()
    if not isinstance(first, Environment):
        raise ConfigurationError(f"{_ACCEPTED}; {build!r} returned {first!r}.")
    environment = cast("AnyEnvironment", first)
    environment.close()
    return type(environment)


def _copies_of(instance: AnyEnvironment) -> tuple[Callable[[], AnyEnvironment], bool]:
    try:
        pristine = copy.deepcopy(instance)
    except Exception:  # what copying runs is the author's code, and any failure means the same: no copies
        return (lambda: instance), True
    return (lambda: copy.deepcopy(pristine)), False


def _declared(cls: type[AnyEnvironment], position: int, hook: str, hint: str, base: type[Any]) -> type[Any] | None:
    """A type named in ``Environment[...]`` among the bases, else in a hook's hints; None if neither is specific."""
    found: list[Any] = []
    for ancestor in cls.__mro__:
        for generic in ancestor.__dict__.get("__orig_bases__", ()):
            origin = typing.get_origin(generic)
            if isinstance(origin, type) and issubclass(origin, Environment):
                arguments = typing.get_args(generic)
                found.append(arguments[position] if len(arguments) > position else None)
    with contextlib.suppress(NameError, TypeError):  # hints may name what is imported for type checkers only
        found.append(typing.get_type_hints(getattr(cls, hook)).get(hint))
    for candidate in found:
        if isinstance(candidate, type) and issubclass(candidate, base) and candidate is not base:
            return candidate
    return None
