"""One watch for all pods of a provider: what there is, kept up to date by the API server's own events.

A list, then the events since; when the connection ends, the events from where it ended; when those are too old (410
Gone), a list again, and whatever is not in it any more has gone meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any, cast

import anyio

from openenv_trl.errors import ProviderError
from openenv_trl.providers.kubernetes.api import ClusterApi, Object, Resource
from openenv_trl.providers.kubernetes.faults import ApiFault
from openenv_trl.providers.logs import logger

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0


class Seen:
    """The objects that there are, by name. Pure: lists and events go in, the objects that changed come out."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.version = ""
        """Up to which version of the list it is known; empty where a list is needed."""

    def take_list(self, listed: Object) -> tuple[list[Object], list[Object]]:
        """Take a list; returns the objects that are new or changed, and those that have gone."""
        now: dict[str, Object] = {
            each["metadata"]["name"]: each for each in cast("list[Object]", listed.get("items") or [])
        }
        gone = [
            each
            for name, each in self.objects.items()
            if name not in now or now[name]["metadata"]["uid"] != each["metadata"]["uid"]
        ]
        changed = [each for name, each in now.items() if _version(each) != _version(self.objects.get(name))]
        self.objects, self.version = now, listed["metadata"]["resourceVersion"]
        return changed, gone

    def take_event(self, event: Object) -> tuple[list[Object], list[Object]]:
        """Take an event; returns the objects that are new or changed, and those that have gone."""
        kind, given = event["type"], event["object"]
        self.version = given["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return [], []
        name = given["metadata"]["name"]
        if kind == "DELETED":
            self.objects.pop(name, None)
            return [], [given]
        self.objects[name] = given
        return [given], []

    def too_old(self) -> None:
        """The events since the version are not to be had any more."""
        self.version = ""


class Watch:
    """Keeps `Seen` up to date.

    Args:
        api: The cluster.
        resource: Which kind of object.
        labels: A label selector.
        on_changed: Called with each object that is new or has changed.
        on_gone: Called with each object that has gone, as it last was.
    """

    def __init__(
        self,
        api: ClusterApi,
        resource: Resource,
        labels: str,
        on_changed: Callable[[Object], Any],
        on_gone: Callable[[Object], Any],
    ) -> None:
        self._api = api
        self._resource = resource
        self._labels = labels
        self._on_changed = on_changed
        self._on_gone = on_gone
        self._seen = Seen()
        self._news = anyio.Event()

    def of(self, label: str, value: str) -> list[Object]:
        """The objects with a label."""
        objects = self._seen.objects.values()
        return [each for each in objects if each["metadata"].get("labels", {}).get(label) == value]

    @property
    def news(self) -> anyio.Event:
        """Set at the next change. Take it before you look, and wait for it after."""
        return self._news

    async def begin(self) -> None:
        """Make the first list. Its errors are raised: what cannot be listed cannot be watched."""
        self._take(*self._seen.take_list(await self._api.list(self._resource, labels=self._labels)))

    async def run(self) -> None:
        """Watch until cancelled, whatever the connection does."""
        failures = 0
        while True:
            try:
                if not self._seen.version:
                    await self.begin()
                version = self._seen.version
                async with aclosing(self._api.watch(self._resource, labels=self._labels, version=version)) as events:
                    async for event in events:
                        failures = 0
                        self._take(*self._seen.take_event(event))
                failures = 0
            except ApiFault as fault:
                if fault.status == 410:
                    self._seen.too_old()
                    continue
                if fault.status == 401 and not failures:
                    await self._renewed()
                failures = self._failed(failures, fault)
            except ProviderError as error:
                failures = self._failed(failures, error)
            await anyio.sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures, 20)) if failures else 0)

    async def _renewed(self) -> None:
        try:
            await self._api.renew()
        except ProviderError as error:
            logger.warning("%s", error)

    def _failed(self, failures: int, error: Exception) -> int:
        if not failures:
            logger.warning("The watch of %s is interrupted, and tried again: %s", self._resource.plural, error)
        return failures + 1

    def _take(self, changed: list[Object], gone: list[Object]) -> None:
        for each in gone:
            self._on_gone(each)
        for each in changed:
            self._on_changed(each)
        if changed or gone:
            news, self._news = self._news, anyio.Event()
            news.set()


def _version(given: Object | None) -> str:
    return "" if given is None else given["metadata"]["resourceVersion"]
