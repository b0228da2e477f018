"""Calls reward functions for a group, as TRL calls them, without holding up the event loop.

Functions that are not coroutines run in a thread, all at once; their work is not waited for when the worker stops.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import Trajectory

RewardCall = Callable[..., Any]
"""A reward function as TRL calls it: keywords only, lists with one value an episode."""


def reward_names(functions: Sequence[RewardCall]) -> list[str]:
    """What the functions are logged by: their ``__name__``, with a number where two have the same."""
    names: list[str] = []
    for function in functions:
        inner: Any = function.func if isinstance(function, functools.partial) else function
        name = str(getattr(inner, "__name__", type(inner).__name__))
        names.append(name if name not in names else f"{name}_{sum(n.startswith(name) for n in names) + 1}")
    return names


async def score_group(
    functions: Sequence[RewardCall],
    trajectories: Sequence[Trajectory],
    columns: Mapping[str, Any],
    log_metric: Callable[[str, float], None],
) -> list[list[float | None]]:
    """Each function's reward of each episode.

    Args:
        functions: See `RewardCall`; also coroutine functions.
        trajectories: The group's.
        columns: The dataset row's columns.
        log_metric: Given to the functions, for numbers of their own.

    Returns:
        A list a function. An episode that failed has None, whatever the function says.

    Raises:
        ConfigurationError: A function raised, or gave not one number or None an episode.
    """
    given: dict[str, Any] = {
        **{name: [value] * len(trajectories) for name, value in columns.items()},
        "prompts": [trajectory.task.prompt for trajectory in trajectories],
        "completions": [trajectory.messages[len(trajectory.task.prompt) :] for trajectory in trajectories],
        "completion_ids": [trajectory.completion_ids for trajectory in trajectories],
        "trajectory": list(trajectories),
        "log_metric": log_metric,
        "log_extra": _ignore,
    }
    names = reward_names(functions)
    results: dict[int, list[float | None]] = {}

    async def call(index: int) -> None:
        function = functions[index]
        try:
            if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
                getattr(function, "__call__", None)  # noqa: B004 (an object whose call is a coroutine function)
            ):
                values = await function(**given)
            else:
                values = await anyio.to_thread.run_sync(functools.partial(function, **given), abandon_on_cancel=True)
        except ConfigurationError:
            raise
        except Exception as error:  # boundary: the function is the user's
            raise ConfigurationError(
                f"The reward function '{names[index]}' raised {type(error).__name__}: {error}. Return None for an "
                "episode that it cannot score."
            ) from error
        results[index] = _checked(names[index], values, trajectories)

    async with anyio.create_task_group() as group:
        for index in range(len(functions)):
            group.start_soon(call, index)
    return [results[index] for index in range(len(functions))]


def _checked(name: str, values: Any, trajectories: Sequence[Trajectory]) -> list[float | None]:
    try:
        listed = [None if value is None else float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"The reward function '{name}' must give a list with a number or None an episode, not {values!r:.80}."
        ) from error
    if len(listed) != len(trajectories):
        raise ConfigurationError(
            f"The reward function '{name}' gave {len(listed)} rewards for {len(trajectories)} episodes; it must give "
            "one for each."
        )
    for trajectory, value in zip(trajectories, listed, strict=True):
        trajectory.rewards.setdefault(name, None if trajectory.end_reason.is_failure else value)
    return [None if t.end_reason.is_failure else value for t, value in zip(trajectories, listed, strict=True)]


def _ignore(*_: Any) -> None:
    """Extra columns of completion tables, which this trainer does not print."""
