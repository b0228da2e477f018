"""Whether episodes that should be equal are: replayed, after others, through other hooks, beside another instance.

Each check goes from a player of episodes to the findings of one promise. Apart from `check_replay`, they mean something
only where equal resets and actions give equal episodes: `repeats` tells.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from openenv_trl.environment_checker.episodes import Player, Trajectory, close, first_difference
from openenv_trl.environment_checker.report import Finding

_ACCIDENTS = (AttributeError, TypeError, LookupError, NameError, AssertionError)
"""Errors that come of using what is no longer there, rather than from a check that says so."""


def check_replay(player: Player, seeds: Sequence[int]) -> Iterator[Finding]:
    """A seed and the actions decide the episode."""
    if "seed" not in (player.subject.accepted(player.subject.served("reset")) or {"seed"}):
        return
    for seed in seeds:
        difference = first_difference(_fresh(player, seed), _fresh(player, seed))
        if difference is not None:
            yield Finding(
                "seed-replay",
                "error",
                f"Two episodes with seed {seed} and the same actions differ: {difference}. Draw all randomness from a "
                "generator that reset seeds, not from the modules random or numpy.random, and not from the time.",
            )
            return
    first = _fresh(player, seeds[0])
    others = [_fresh(player, seed, action_seed=seeds[0]) for seed in seeds[1:]]
    if others and all(first_difference(first, other) is None for other in others):
        yield Finding(
            "seed-ignored",
            "note",
            f"The seeds {', '.join(map(str, seeds))} all gave the same episode. That is right where nothing is random; "
            "otherwise use the seed.",
        )


def repeats(player: Player, seeds: Sequence[int]) -> bool:
    """Whether equal resets and actions give equal episodes, so that episodes can be compared at all."""
    return all(first_difference(_fresh(player, seed), _fresh(player, seed)) is None for seed in seeds)


def check_reset_clears(player: Player, seeds: Sequence[int]) -> Iterator[Finding]:
    """An episode does not depend on the ones before it."""
    environment = player.subject.build()
    for seed in seeds[1:]:
        player.play(environment, seed)
    used = player.play(environment, seeds[0])
    close(environment)
    difference = first_difference(_fresh(player, seeds[0]), used)
    if difference is not None:
        yield Finding(
            "reset-clears",
            "error",
            f"A fresh environment and one that has played before differ with seed {seeds[0]}: {difference}. Set "
            "everything anew in reset: sessions are used for many episodes.",
        )


def check_hooks_agree(player: Player, seeds: Sequence[int]) -> Iterator[Finding]:
    """The asynchronous hooks do what the synchronous ones do, where both are there."""
    if not (player.subject.overrides("reset_async") or player.subject.overrides("step_async")):
        return
    for seed in seeds:
        environment = player.subject.build()
        synchronous = player.play(environment, seed, hooks="sync")
        close(environment)
        if any(isinstance(moment.error, NotImplementedError) for moment in synchronous):
            return
        difference = first_difference(_fresh(player, seed), synchronous)
        if difference is not None:
            yield Finding(
                "hooks-agree",
                "error",
                f"The asynchronous and the synchronous hooks differ with seed {seed}: {difference}. Let one call the "
                "other, or raise NotImplementedError in the synchronous ones.",
            )
            return


def check_independence(player: Player, seeds: Sequence[int]) -> Iterator[Finding]:
    """Two instances, stepped in turn, do what each does alone; also when the other has been closed."""
    subject = player.subject
    if subject.single:
        yield Finding(
            "single-instance",
            "note",
            f"This {subject.name} cannot be copied, so that its independence of others was not checked. Pass the class "
            "or a function that makes one.",
        )
        return
    seed, other = seeds[0], seeds[-1] + 1
    left, right = subject.build(), subject.build()
    turns = itertools.zip_longest(player.moments(left, seed), player.moments(right, other))
    together = list(zip(*turns, strict=True))
    close(left)
    after = player.play(right, seed)
    close(right)
    alone = subject.build()
    expected = player.play(alone, other), player.play(alone, seed)
    close(alone)
    difference = (
        first_difference(_fresh(player, seed), [moment for moment in together[0] if moment is not None])
        or first_difference(expected[0], [moment for moment in together[1] if moment is not None])
        or first_difference(expected[1], after)
    )
    declared = subject.environment_cls.SUPPORTS_CONCURRENT_SESSIONS
    if difference is not None:
        advice = "Keep everything in the instance, nothing in the class, the module or a shared file"
        yield Finding(
            "concurrent-sessions" if declared else "instances-share-state",
            "error" if declared else "warning",
            f"Two instances of {subject.name} stepped in turn do not do what each does alone: {difference}. {advice}"
            + (", or set SUPPORTS_CONCURRENT_SESSIONS = False." if declared else "."),
        )
    elif not declared:
        yield Finding(
            "concurrency-undeclared",
            "note",
            f"Two instances of {subject.name} did not disturb each other. If they share nothing, set "
            "SUPPORTS_CONCURRENT_SESSIONS = True, so that one server holds many sessions.",
        )


def check_use_after_close(player: Player, seed: int) -> Iterator[Finding]:
    """After ``close``, an episode works as before or is refused by an error that says so."""
    closed, open_one = player.subject.build(), player.subject.build()
    for environment in (closed, open_one):
        player.play(environment, seed)
    close(closed)
    after = player.play(closed, seed)
    difference = first_difference(player.play(open_one, seed), after)
    close(open_one)
    error = after[-1].error
    if difference is None or (error is not None and not isinstance(error, _ACCIDENTS)):
        return
    yield Finding(
        "use-after-close",
        "warning",
        f"A closed {player.subject.name} goes on, but not as an open one: {difference}. Raise a SessionStateError that "
        "says that it is closed.",
    )


def _fresh(player: Player, seed: int, action_seed: int | None = None) -> Trajectory:
    environment = player.subject.build()
    trajectory = player.play(environment, seed, action_seed=action_seed)
    close(environment)
    return trajectory
