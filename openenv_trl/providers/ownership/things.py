"""What an owner has started, wherever it is, and the places that are searched for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from openenv_trl.providers.owner import Owner

Kind: TypeAlias = Literal["process", "container", "service", "network", "volume", "job", "pod"]


@dataclass(frozen=True)
class Thing:
    """One thing that carries an owner's labels."""

    kind: Kind
    id: str
    """What its place calls it."""
    name: str
    owner: Owner
    state: str
    """In the words of its place, such as ``running``."""
    created: float | None = None
    """When it came to be, in seconds since 1970; None where that is not told."""
    lease_s: float | None = None
    """For how long it outlives its owner by itself."""


class Inventory(AbstractAsyncContextManager["Inventory"], ABC):
    """A place with things of owners: this machine's processes, an engine, a cluster. Open within its ``async with``.

    Nothing is ever listed that does not carry an owner's labels, so nothing else can be removed.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The place in words."""

    @abstractmethod
    async def list(self, owner_id: str | None = None) -> list[Thing]:
        """Return what there is.

        Args:
            owner_id: Whose; every owner's if None.

        Raises:
            ProviderError: The place does not answer.
        """

    @abstractmethod
    async def remove(self, things: Sequence[Thing]) -> list[str]:
        """End and remove things; return what went wrong, a sentence each. What is gone already is no fault.

        Raises:
            ProviderError: The place does not answer.
        """
