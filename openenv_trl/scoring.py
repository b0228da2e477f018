"""Transform and rubric, applied to what an environment returns: once for each call, whoever does it.

An environment's own code may call ``_apply_rubric`` and ``_apply_transform`` itself; what it did not do in a call is
done when the call returns, first the rubric, then the transform, which so has the last word. An environment that has
neither is left as it is, and pays nothing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from openenv_trl.blocking import wait_for
from openenv_trl.rubrics.rubric import Rubric, follow
from openenv_trl.transform import Transform
from openenv_trl.types import ListToolsAction, Observation

if TYPE_CHECKING:
    from collections.abc import Generator

RUBRIC_METADATA = "rubric"
"""The key of an observation's metadata under which the named scores of its rubric stand."""


@dataclass
class ScoredCall:
    """What has been applied in one call of a hook."""

    scored: bool = False
    transformed: bool = False


def has_scoring(environment: Any) -> bool:
    """Whether the environment was given a rubric or a transform."""
    return isinstance(environment.rubric, Rubric) or isinstance(environment.transform, Transform)


def install_scoring(environment: Any, hooks: Iterable[str]) -> None:
    """Have this instance's hooks scored and transformed when they return.

    Args:
        environment: An environment that was given a rubric or a transform.
        hooks: Names of methods. In those with "step" in their name, the first argument is the action.
    """
    if environment._is_scored:
        return
    environment._is_scored = True
    for name in hooks:
        setattr(environment, name, _wrapped(environment, getattr(environment, name), is_step="step" in name))


def scores_of(rubric: Rubric) -> dict[str, float]:
    """Return the last scores of a rubric, under its class's name, and of its parts, under their dotted names."""
    named = [(type(rubric).__name__, rubric), *rubric.named_rubrics()]
    return {name: each.last_score for name, each in named if each.last_score is not None}


def _wrapped(environment: Any, hook: Callable[..., Any], *, is_step: bool) -> Callable[..., Any]:
    @functools.wraps(hook)
    def scored(*args: Any, **kwargs: Any) -> Any:
        if environment._scored_call is not None:  # called by another hook, which does it
            return hook(*args, **kwargs)
        action = (args[0] if args else kwargs.get("action")) if is_step else None
        environment._scored_call = ScoredCall()
        later: Awaitable[Any] | None = None
        try:
            observation = hook(*args, **kwargs)
            if inspect.isawaitable(observation):
                later = _finished_later(environment, action, observation, is_step=is_step)
                return later
            finished = follow(_finish(environment, action, observation, is_step=is_step))
            return wait_for(finished, what="The rubric") if inspect.isawaitable(finished) else finished
        finally:
            if later is None:
                environment._scored_call = None

    return scored


async def _finished_later(environment: Any, action: Any, pending: Awaitable[Any], *, is_step: bool) -> Any:
    try:
        finished = follow(_finish(environment, action, await pending, is_step=is_step))
        return await finished if inspect.isawaitable(finished) else finished
    finally:
        environment._scored_call = None


def _finish(environment: Any, action: Any, observation: Any, *, is_step: bool) -> Generator[Any, Any, Any]:
    if not isinstance(observation, Observation) or isinstance(action, ListToolsAction):
        return observation  # not one, which is the server's to refuse; or no move, which has no score
    call: ScoredCall = environment._scored_call
    rubric: Any = environment.rubric
    transform: Any = environment.transform
    if isinstance(rubric, Rubric):
        if is_step and not call.scored:
            observation.reward = yield rubric(action, observation)
        if is_step:
            observation.metadata.setdefault(RUBRIC_METADATA, scores_of(rubric))
        elif not call.scored:
            yield rubric.reset()
    apply = isinstance(transform, Transform) and not call.transformed
    return cast("Callable[[Any], Any]", transform)(observation) if apply else observation
