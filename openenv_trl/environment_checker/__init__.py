"""`check_environment`: does an environment keep the promises that training with it rests on?

It plays short episodes in process, as a server would, and reports each broken promise as a sentence that says what to
change. In the spirit of Gymnasium's ``gymnasium.utils.env_checker``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anyio.from_thread import start_blocking_portal

from openenv_trl.environment_checker import comparisons, form
from openenv_trl.environment_checker.episodes import Player, SampleActions
from openenv_trl.environment_checker.report import CheckReport, Finding
from openenv_trl.environment_checker.subject import Buildable, subject_of
from openenv_trl.errors import ConfigurationError
from openenv_trl.types import Action, Observation

__all__ = ["CheckReport", "Finding", "check_environment"]


def check_environment(
    environment: Buildable,
    *,
    action_cls: type[Action] | None = None,
    observation_cls: type[Observation] | None = None,
    sample_actions: SampleActions | None = None,
    reset_arguments: Mapping[str, Any] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 20,
) -> CheckReport:
    """Check that an environment keeps its contract.

    Checked are the schemas, the metadata, the parameters of reset, every observation, reward and state of some
    episodes, the tools, ``close``, and then whether episodes are equal that should be: replayed with one seed, after
    other episodes, through the asynchronous and the synchronous hooks, stepped in turn with another instance, and
    after ``close``. One fault gives one finding: comparisons are left out where they could mean nothing.

    Args:
        environment: A class, a function without arguments that makes an environment, or an instance, which is copied
            deeply and left as it is.
        action_cls: What steps take; read from the class's bases or type hints if None.
        observation_cls: What the hooks return; likewise.
        sample_actions: The actions to take, one after another and round again, or a function of the last observation
            and a seeded `random.Random`. Drawn from the action's JSON Schema, or from the tools' schemas, if None.
        reset_arguments: Passed to every reset beside ``seed`` and ``episode_id``.
        seeds: The seeds that episodes are played with.
        steps: The largest number of steps in an episode.

    Returns:
        The findings, the gravest first; print it, or call its ``raise_for_errors()``.

    Raises:
        ConfigurationError: The arguments do not fit each other or the environment.

    Example:
        >>> from blackjack_env.server.blackjack_environment import BlackjackEnvironment
        >>> print(check_environment(BlackjackEnvironment))
        BlackjackEnvironment: no findings.
    """
    if not seeds or steps < 1:
        raise ConfigurationError("check_environment needs at least one seed and one step.")
    if sample_actions is not None and not callable(sample_actions) and len(sample_actions) == 0:
        raise ConfigurationError("sample_actions is empty: name at least one action, or leave it out.")
    subject = subject_of(environment, action_cls, observation_cls)
    accepted = subject.accepted(subject.served("reset"))
    unknown = sorted(set(reset_arguments or ()) - set(accepted)) if accepted is not None else []
    if unknown:
        raise ConfigurationError(f"reset of {subject.name} has no parameter {', '.join(map(repr, unknown))}.")
    with start_blocking_portal() as portal:
        player = Player(subject, portal, sample_actions, dict(reset_arguments or {}), steps)
        return CheckReport(subject.name, _findings(player, list(seeds)))


def _findings(player: Player, seeds: Sequence[int]) -> Iterator[Finding]:
    before = list(itertools.chain(form.check_construction(player), form.check_schemas(player)))
    yield from before
    if any(finding.level == "error" for finding in before):
        return
    yield from form.check_metadata(player)
    yield from form.check_reset_parameters(player)
    episodes = list(form.check_episodes(player, seeds))
    yield from episodes
    yield from form.check_close(player, seeds[0])
    if any(finding.code in {"reset-raised", "observation-type"} for finding in episodes):
        return
    yield from form.check_tools(player, seeds[0])
    yield from comparisons.check_replay(player, seeds)
    if comparisons.repeats(player, seeds):
        yield from comparisons.check_reset_clears(player, seeds)
        yield from comparisons.check_hooks_agree(player, seeds)
        yield from comparisons.check_independence(player, seeds)
        yield from comparisons.check_use_after_close(player, seeds[0])
