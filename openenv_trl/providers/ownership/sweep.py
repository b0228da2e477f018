"""Removing all that one dead owner had: ``python sweep.py OWNER_ID PLACES``.

``PLACES`` is a JSON list of places, such as ``[{"type": "docker", "docker_host": null}]``. Each is looked at again and
again until nothing has been seen there for a while: what an engine was asked to make in the owner's last moment may
appear after it. An engine that does not answer is asked again for some minutes.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from openenv_trl.errors import ConfigurationError, OpenEnvError
from openenv_trl.providers.ownership.things import Inventory

logger = logging.getLogger("openenv_trl.providers")

QUIET_S = 20.0
"""For how long nothing must have been seen at a place."""
GIVE_UP_S = 600.0
"""For how long an engine may not answer."""
_OFTEN_S = 10.0
_SHORT_PAUSE_S = 0.5
_LONG_PAUSE_S = 2.0


def inventory_of(place: Mapping[str, Any]) -> Inventory:
    """Return the inventory of a place; nothing is opened yet.

    Args:
        place: Its ``type``, and what else its inventory is made with.

    Raises:
        ValueError: There is no such type.
    """
    kind = place.get("type")
    if kind in ("docker", "swarm"):
        from openenv_trl.providers.ownership.docker_engine import DockerInventory

        return DockerInventory(place.get("docker_host"), place.get("settings"))
    if kind == "kubernetes":
        from openenv_trl.providers.kubernetes.inventory import KubernetesInventory

        return KubernetesInventory(**{name: value for name, value in place.items() if name != "type"})
    if kind == "process":
        from openenv_trl.providers.ownership.processes import ProcessInventory

        return ProcessInventory()
    raise ValueError(f"no place has the type {kind!r}")


async def sweep(owner_id: str, make: Callable[[], Inventory], quiet_s: float = QUIET_S) -> int:
    """Remove what an owner has at one place, until nothing comes any more; return how many things it was.

    Args:
        owner_id: Whose.
        make: Gives the place, anew after a break.
        quiet_s: For how long nothing must have been seen.
    """
    removed: set[str] = set()
    seen_at = answered_at = anyio.current_time()
    while anyio.current_time() - answered_at < GIVE_UP_S:
        try:
            async with make() as inventory:
                while True:
                    things = await inventory.list(owner_id)
                    now = answered_at = anyio.current_time()
                    if things:
                        seen_at = now
                        removed.update(f"{thing.kind} {thing.id}" for thing in things)
                        for failure in await inventory.remove(things):
                            logger.warning("%s", failure)
                    elif now - seen_at >= quiet_s:
                        return len(removed)
                    await anyio.sleep(_SHORT_PAUSE_S if now - seen_at < _OFTEN_S else _LONG_PAUSE_S)
        except ConfigurationError:
            raise  # another try would meet with the same
        except OpenEnvError as error:
            logger.warning("%s", error)
            seen_at = anyio.current_time()
        except Exception:
            # As where the package is being replaced just now: a later try finds it whole.
            logger.exception("The things of owner %s cannot be removed yet", owner_id)
            seen_at = anyio.current_time()
        await anyio.sleep(_LONG_PAUSE_S)
    return len(removed)


async def sweep_all(owner_id: str, places: Sequence[Mapping[str, Any]]) -> None:
    """Remove what an owner has at several places."""

    async def one(place: Mapping[str, Any]) -> None:
        try:
            count = await sweep(owner_id, lambda: inventory_of(place))
        except Exception:
            # One place that fails must not keep the others from being swept.
            logger.exception("The things of owner %s at %s cannot be removed", owner_id, place)
            return
        logger.info("Removed %d things of owner %s at %s", count, owner_id, place)

    async with anyio.create_task_group() as tasks:
        for place in places:
            tasks.start_soon(one, place)


def main(arguments: Sequence[str]) -> int:
    """Run the command. Returns its exit status."""
    owner_id, places = arguments
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    anyio.run(sweep_all, owner_id, json.loads(places))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
