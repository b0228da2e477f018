"""Whether an environment is well formed: it can be built, has schemas, and returns what it promised.

Each check goes from a player of episodes to the findings of one promise.
"""

from __future__ import annotations

import inspect
import itertools
import math
import random
from collections.abc import Iterable, Iterator
from functools import partial

from openenv_trl.environment_checker.episodes import Moment, Player, attempt, close
from openenv_trl.environment_checker.lost_numbers import place_of_lost_number
from openenv_trl.environment_checker.report import Finding
from openenv_trl.environment_checker.sampling import sample
from openenv_trl.plain_numbers import plain_number
from openenv_trl.types import EnvironmentMetadata, Observation, State
from openenv_trl.wire.codec import encode
from openenv_trl.wire.model_values import dump_model

_CONVERT = "A server would take the step and then fail to say what it brought: convert it where it is made."


def check_construction(player: Player) -> Iterator[Finding]:
    """An environment can be built without arguments."""
    environment, error = attempt(player.subject.build)
    if error is not None:
        yield Finding(
            "construction",
            "error",
            f"Building {player.subject.name} raised {error!r}. A server builds one environment a session, without "
            "arguments: give the constructor defaults, or pass a function that fills them in.",
        )
        return
    close(environment)


def check_schemas(player: Player) -> Iterator[Finding]:
    """The types have JSON Schemas, and valid actions can be made."""
    subject = player.subject
    for cls in filter(None, (subject.action_cls, subject.observation_cls)):
        _, error = attempt(cls.model_json_schema)
        if error is not None:
            yield Finding(
                "schema",
                "error",
                f"{cls.__name__} has no JSON Schema: {str(error).splitlines()[0]} Give that field a type that JSON can "
                "carry (numbers, strings, lists, dicts, pydantic models).",
            )
            return
    tools, error = attempt(lambda: subject.tools)
    if error is not None:
        yield Finding("tool-schema", "error", f"The tools of {subject.name} have no JSON Schema: {error}")
        return
    for tool in tools:
        if not tool.description:
            yield Finding(
                "tool-description",
                "warning",
                f"The tool '{tool.name}' has no description, and the model reads nothing else about it. Write a "
                "docstring, or pass @tool(description=...).",
            )
    if player.sample_actions is None:
        _, error = attempt(lambda: player.action(0, Observation(), random.Random(0)))
        if error is not None:
            yield Finding("action-sampling", "error", str(error))


def check_metadata(player: Player) -> Iterator[Finding]:
    """``get_metadata`` says a name and a description."""
    environment = player.subject.build()
    metadata, error = attempt(environment.get_metadata)
    close(environment)
    if error is not None:
        saw = f"raised {error!r}"
    elif not isinstance(metadata, EnvironmentMetadata):
        saw = f"returned {metadata!r}"
    elif not (metadata.name.strip() and metadata.description.strip()):
        saw = f"returned an empty name or description: {metadata!r}"
    else:
        return
    yield Finding(
        "metadata",
        "error",
        f"get_metadata {saw}. Return an EnvironmentMetadata with a name and a description; it is also called before "
        "the first reset.",
    )


def check_reset_parameters(player: Player) -> Iterator[Finding]:
    """Each reset hook takes a seed and an episode's name."""
    hooks = ["reset", *(["reset_async"] if player.subject.overrides("reset_async") else [])]
    for name, loss in (
        ("seed", "no episode can be played again, and the G generations of a prompt cannot share a task"),
        ("episode_id", "the trainer's name of an episode is lost"),
    ):
        lacking = [hook for hook in hooks if name not in (player.subject.accepted(hook) or {name})]
        if lacking:
            yield Finding(
                f"reset-{name.replace('_', '-')}",
                "error",
                f"{' and '.join(lacking)} of {player.subject.name} has no parameter '{name}': servers drop it "
                f"silently, so that {loss}. Add '{name}=None' to the signature and use it.",
            )


def check_episodes(player: Player, seeds: Iterable[int]) -> Iterator[Finding]:
    """Episodes run, and each moment of them is well formed. Each code is found once."""
    found: set[str] = set()
    for seed in seeds:
        environment = player.subject.build()
        for episode_id in (f"check-{seed}", f"check-{seed}-again"):
            for steps, moment in enumerate(player.moments(environment, seed, episode_id=episode_id)):
                for finding in itertools.chain(
                    _moment_findings(player, moment), _state_findings(player, moment, steps, episode_id)
                ):
                    if finding.code not in found:
                        found.add(finding.code)
                        yield finding
        close(environment)


def _moment_findings(player: Player, moment: Moment) -> Iterator[Finding]:
    cls = player.subject.observation_cls
    if moment.error is not None:
        advice = (
            "A reset with an unused seed must succeed."
            if moment.phase == "reset"
            else "An action that fits the schema should bring an observation that says what was wrong with it; or "
            "narrow the action's fields, or pass sample_actions that this environment allows."
        )
        grave = moment.phase == "reset" or player.sample_actions is not None
        yield Finding(
            f"{moment.phase}-raised",
            "error" if grave else "warning",
            f"{moment.call} raised {moment.error!r}. {advice}",
        )
        return
    result = moment.result
    if not isinstance(result, cls):
        yield Finding(
            "observation-type",
            "error",
            f"{moment.call} returned {type(result).__name__}, not {cls.__name__}. Return the class that the "
            "environment declares (in Environment[...], or as observation_cls): clients parse by its schema.",
        )
        if not isinstance(result, Observation):
            return
    yield from _content_findings(moment.call, result)
    reward = result.reward
    if reward is not None and not _is_finite_number(reward):
        yield Finding(
            "reward",
            "error",
            f"{moment.call} gave the reward {reward!r}. A reward is a finite number, or None where there is none: the "
            "wire turns anything else into null.",
        )
    if not isinstance(result.done, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - what is checked here
        yield Finding("done", "error", f"{moment.call} gave done={result.done!r}. Set it to True or False.")
    elif moment.phase == "reset" and result.done:
        yield Finding(
            "reset-done",
            "error",
            f"{moment.call} returned done=True: no step can follow. Return done=False, and end the episode with the "
            "first step's observation where there is nothing to do.",
        )


def _content_findings(call: str, observation: Observation) -> Iterator[Finding]:
    """Whether what an observation holds reaches a client, and reaches it as it is."""
    try:
        written = dump_model(observation, exclude={"reward", "done"}, at="observation")
        encode(written, at="observation")
    except TypeError as error:
        yield Finding(
            "observation-json",
            "error",
            f"What {call} returned cannot be sent. {str(error).rstrip('.')}. {_CONVERT}",
        )
        return
    place = place_of_lost_number(written, "observation")
    if place is not None:
        yield Finding(
            "observation-nan",
            "warning",
            f"What {call} returned holds a number that is not finite, at {place}. JSON has no word for it: clients "
            "of the OpenEnv wire get null, which a typed client refuses. Show None or a finite number instead.",
        )


def _is_finite_number(value: object) -> bool:
    number = plain_number(value)
    return number is not None and math.isfinite(number)


def _state_findings(player: Player, moment: Moment, steps: int, episode_id: str) -> Iterator[Finding]:
    if moment.error is not None:
        return
    state = moment.state
    if not isinstance(state, State):
        yield Finding(
            "state-type",
            "error",
            f"After {moment.call}, the property state gave {state!r}. Return a State (or a subclass) at any time, "
            "without side effects.",
        )
        return
    try:
        encode(dump_model(state, at="state"), at="state")
    except TypeError as error:
        yield Finding(
            "state-json",
            "error",
            f"After {moment.call}, the state cannot be sent. {str(error).rstrip('.')}. Convert it where it is made.",
        )
    takes_name = "episode_id" in (player.subject.accepted(player.subject.served("reset")) or {"episode_id"})
    if takes_name and state.episode_id != episode_id:
        yield Finding(
            "state-episode-id",
            "error",
            f"After {moment.call}, state.episode_id was {state.episode_id!r}. Keep the episode_id that reset was "
            "given, and make one up only where it was None.",
        )
    if state.step_count != steps:
        yield Finding(
            "state-step-count",
            "error",
            f"After {moment.call}, state.step_count was {state.step_count} and {steps} steps were taken. Set "
            "it to 0 in reset and add 1 in every step and tool.",
        )


def check_tools(player: Player, seed: int) -> Iterator[Finding]:
    """Each tool takes what its schema allows, and returns an observation."""
    for tool in player.subject.tools:
        environment = player.subject.build()
        next(player.moments(environment, seed))
        arguments = sample(tool.input_schema, random.Random(seed))
        result, error = attempt(partial(player.call_tool, environment, tool.name, arguments))
        close(environment)
        if error is not None:
            yield Finding(
                "tool-raised",
                "warning",
                f"The tool '{tool.name}' raised {error!r} for {arguments!r}, which fit its schema. Return an "
                "observation that says what was wrong, or narrow its type hints.",
            )
        elif not isinstance(result, Observation) and not player.subject.environment_cls.TOOL_CALLS_ARE_STEPS:
            yield Finding(
                "tool-result",
                "error",
                f"The tool '{tool.name}' returned {type(result).__name__}. Return an Observation, with "
                "reward and done.",
            )


def check_close(player: Player, seed: int) -> Iterator[Finding]:
    """``close`` works, at once and not later, and a second time too."""
    environment = player.subject.build()
    next(player.moments(environment, seed))
    result, error = close(environment)
    if error is not None:
        yield Finding("close", "error", f"close raised {error!r}. What it gives back must be given back without fail.")
        return
    if inspect.isawaitable(result):
        yield Finding(
            "close", "error", "close is an async method, and servers do not await it. Make it a plain method."
        )
        return
    _, error = close(environment)
    if error is not None:
        yield Finding(
            "close-twice",
            "warning",
            f"A second close raised {error!r}. Remember that it is closed, and do nothing the second time.",
        )
