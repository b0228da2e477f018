"""All that there is of this package's at several places, and the removal of a part of it: for ``ps`` and ``prune``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from openenv_trl.errors import ConfigurationError, OpenEnvError
from openenv_trl.providers.owner import OwnerState
from openenv_trl.providers.ownership.sweep import inventory_of
from openenv_trl.providers.ownership.things import Inventory, Thing

_ROUNDS = 20
_PAUSE_S = 0.5


@dataclass(frozen=True)
class Found:
    """One thing, with where it is and whether its owner lives."""

    thing: Thing
    place: str
    owner_state: OwnerState

    def age_s(self, now: float) -> float | None:
        """How old it is, at a time in seconds since 1970; None where that is not known."""
        return None if self.thing.created is None else max(0.0, now - self.thing.created)


@dataclass
class Survey:
    """What was found, and what could not be looked at."""

    found: list[Found] = field(default_factory=list[Found])
    not_listed: list[str] = field(default_factory=list[str])
    """A sentence a place that did not answer."""


@dataclass(frozen=True)
class Choice:
    """Which things are to be removed; by default those of owners that are dead.

    Attributes:
        owner: Only those of this owner, alive or dead: the first characters of its id.
        everything: Those of living owners too, and of those of which nothing can be told from here.
        older_than_s: Only what is at least so old.
    """

    owner: str | None = None
    everything: bool = False
    older_than_s: float = 0.0

    def takes(self, found: Found, now: float) -> bool:
        """Whether a thing is to be removed, at a time in seconds since 1970."""
        age_s = found.age_s(now)
        if self.older_than_s and (age_s is None or age_s < self.older_than_s):
            return False
        if self.owner is not None:
            return found.thing.owner.id.startswith(self.owner)
        return self.everything or found.owner_state is OwnerState.DEAD


@asynccontextmanager
async def opened(places: Sequence[Mapping[str, Any]], not_listed: list[str]) -> AsyncGenerator[list[Inventory]]:
    """Open all places that answer; the others are told of in ``not_listed``."""
    async with AsyncExitStack() as stack:
        inventories: list[Inventory] = []
        for place in places:
            inventory = inventory_of(place)
            try:
                inventories.append(await stack.enter_async_context(inventory))
            except OpenEnvError as error:
                not_listed.append(f"{inventory.name}: not listed. {error}")
        yield inventories


async def survey(inventories: Sequence[Inventory]) -> Survey:
    """Look at all of the places."""
    seen = Survey()
    states: dict[str, OwnerState] = {}

    async def look(inventory: Inventory) -> None:
        try:
            things = await inventory.list()
        except OpenEnvError as error:
            seen.not_listed.append(f"{inventory.name}: not listed. {error}")
            return
        for thing in things:
            if thing.owner.id not in states:
                states[thing.owner.id] = thing.owner.state
            seen.found.append(Found(thing, inventory.name, states[thing.owner.id]))

    async with anyio.create_task_group() as tasks:
        for inventory in inventories:
            tasks.start_soon(look, inventory)
    seen.found.sort(key=lambda each: (each.place, each.thing.owner.id))
    return seen


def owners_named(found: Sequence[Found], owner: str) -> set[str]:
    """Return the ids of owners that begin so; there may be none.

    Raises:
        ConfigurationError: There are several.
    """
    ids = {each.thing.owner.id for each in found if each.thing.owner.id.startswith(owner)}
    if len(ids) > 1:
        raise ConfigurationError(f"{len(ids)} owners have an id that begins with '{owner}'. Give more of it.")
    return ids


async def remove(
    inventories: Sequence[Inventory], takes: Callable[[Found], bool], told: Callable[[Found], None]
) -> list[str]:
    """Remove things until none of them is left; return what went wrong.

    Args:
        inventories: The places.
        takes: Whether a thing is to be removed.
        told: Called once for each that is.
    """
    names: set[tuple[str, str]] = set()
    failures: list[str] = []
    for _ in range(_ROUNDS):
        chosen = [each for each in (await survey(inventories)).found if takes(each)]
        if not chosen:
            return []
        for each in chosen:
            if (each.thing.kind, each.thing.id) not in names:
                names.add((each.thing.kind, each.thing.id))
                told(each)
        failures = []
        for inventory in inventories:
            things = [each.thing for each in chosen if each.place == inventory.name]
            if things:
                failures += await inventory.remove(things)
        await anyio.sleep(_PAUSE_S)
    return failures or ["What was removed has come again; something makes it anew."]
