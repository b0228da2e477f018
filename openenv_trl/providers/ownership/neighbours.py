"""What a living owner does for dead ones: it removes what they have left at the engine that it uses itself.

Needed only where an owner's reaper died with it, as in a machine's crash: what never ran, or has ended by its lease,
then still stands there. What is of other machines stays, since nothing can be told of their owners from here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import anyio

from openenv_trl.providers.owner import OwnerState
from openenv_trl.providers.ownership.sweep import inventory_of

logger = logging.getLogger("openenv_trl.providers")

FIRST_S = 3.0
"""Seconds that an owner waits: its own servers start first, and a dead owner's own reaper may be at work still."""


async def clean_up_after_the_dead(place: Mapping[str, Any]) -> None:
    """Remove what dead owners of this machine have at a place. Never raises: it is nobody's own business.

    Args:
        place: Where, as for `inventory_of`.
    """
    await anyio.sleep(FIRST_S)
    try:
        async with inventory_of(place) as inventory:
            left = [thing for thing in await inventory.list() if thing.owner.state is OwnerState.DEAD]
            failures = await inventory.remove(left) if left else []
        for failure in failures:
            logger.debug("%s", failure)
        if left:
            logger.info("Removed %d things that dead owners had left at %s", len(left) - len(failures), inventory.name)
    except Exception as error:
        logger.debug("Nothing was removed of what dead owners may have left: %s", error)
