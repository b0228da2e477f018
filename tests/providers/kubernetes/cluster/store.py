"""The objects of the test cluster: versions, a history to watch from, label selectors, deletion with a grace time.

As in the real one, every change gives an object a new ``resourceVersion``, and whoever watches sees each change once.
A history is kept until it is compacted; a watch from before that gets 410 Gone.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import anyio

Object = dict[str, Any]
Key = tuple[str, str, str]
"""A plural, a namespace, a name."""


class Refused(Exception):
    """A call that the API server refuses."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details or {}

    @property
    def status(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


@dataclass(frozen=True)
class Change:
    """One event of a watch."""

    version: int
    kind: str
    plural: str
    object: Object


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether labels meet a selector of ``key``, ``key=value`` and ``key!=value``, separated by commas."""
    for term in filter(None, selector.split(",")):
        key, sign, value = term.replace("==", "=").partition("=")
        if key.endswith("!"):
            if labels.get(key[:-1]) == value:
                return False
        elif (sign and labels.get(key) != value) or key not in labels:
            return False
    return True


def field_of(given: Object, path: str) -> str:
    for part in path.split("."):
        given = given.get(part) or {}
    return given if isinstance(given, str) else ""


class Store:
    """All objects, and what happened to them."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._version = 100
        self._history: list[Change] = []
        self._oldest = 0
        self.changed = anyio.Event()

    @property
    def version(self) -> str:
        return str(self._version)

    def all(self, plural: str, namespace: str = "", labels: str = "", fields: str = "") -> list[Object]:
        found = [
            each
            for (kind, place, _), each in self._objects.items()
            if kind == plural and namespace in ("", place) and matches(labels, each["metadata"].get("labels") or {})
        ]
        for term in filter(None, fields.split(",")):
            path, _, value = term.partition("=")
            found = [each for each in found if field_of(each, path) == value]
        return copy.deepcopy(found)

    def get(self, plural: str, namespace: str, name: str) -> Object:
        try:
            return copy.deepcopy(self._objects[plural, namespace, name])
        except KeyError:
            message = f'{plural} "{name}" not found'
            raise Refused(404, "NotFound", message, {"name": name, "kind": plural}) from None

    def find(self, plural: str, namespace: str, name: str) -> Object | None:
        return copy.deepcopy(self._objects.get((plural, namespace, name)))

    def create(self, plural: str, namespace: str, given: Object) -> Object:
        given = copy.deepcopy(given)
        metadata = given.setdefault("metadata", {})
        if "generateName" in metadata and "name" not in metadata:
            metadata["name"] = f"{metadata['generateName']}{uuid.uuid4().hex[:5]}"
        name = metadata["name"]
        if (plural, namespace, name) in self._objects:
            raise Refused(409, "AlreadyExists", f'{plural} "{name}" already exists', {"name": name, "kind": plural})
        metadata |= {"namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": now()}
        self._put("ADDED", plural, given)
        return copy.deepcopy(given)

    def change(self, plural: str, namespace: str, name: str, edit: Callable[[Object], None]) -> Object | None:
        """Edit an object in place, if it is there; an edit that changes nothing is none."""
        given = self.find(plural, namespace, name)
        if given is None:
            return None
        before = copy.deepcopy(given)
        edit(given)
        if given != before:
            self._put("MODIFIED", plural, given)
        return given

    def delete(self, plural: str, namespace: str, name: str, grace_s: int | None = None) -> Object:
        """Delete an object. A pod that a node has is only marked, with a grace time, until the node says it is over."""
        given = self.get(plural, namespace, name)
        if plural == "pods" and grace_s != 0 and given["spec"].get("nodeName"):
            seconds = grace_s if grace_s is not None else given["spec"].get("terminationGracePeriodSeconds", 30)

            def mark(pod: Object) -> None:
                pod["metadata"].setdefault("deletionTimestamp", now())
                pod["metadata"].setdefault("deletionGracePeriodSeconds", seconds)

            marked = self.change(plural, namespace, name, mark)
            assert marked is not None
            return marked
        del self._objects[plural, namespace, name]
        self._note("DELETED", plural, given)
        return given

    def since(self, version: int, plural: str, namespace: str, labels: str) -> Iterator[Change]:
        """The changes after a version; those to objects that a selector does not mean are left out."""
        if version < self._oldest:
            raise Refused(410, "Expired", f"too old resource version: {version} ({self._oldest})")
        for each in list(self._history):
            metadata = each.object["metadata"]
            if (
                each.version > version
                and each.plural == plural
                and namespace in ("", metadata["namespace"])
                and matches(labels, metadata.get("labels") or {})
            ):
                yield each

    def compact(self) -> None:
        """Forget the history."""
        self._version += 1
        self._oldest = self._version
        self._history.clear()

    def _put(self, kind: str, plural: str, given: Object) -> None:
        metadata = given["metadata"]
        self._objects[plural, metadata["namespace"], metadata["name"]] = given
        self._note(kind, plural, given)

    def _note(self, kind: str, plural: str, given: Object) -> None:
        self._version += 1
        given["metadata"]["resourceVersion"] = str(self._version)
        self._history.append(Change(self._version, kind, plural, copy.deepcopy(given)))
        changed, self.changed = self.changed, anyio.Event()
        changed.set()
