"""Transforms: what is done to every observation before it leaves an environment.

Source: ``interfaces`` and ``base_transforms`` of ``openenv.core.env_server``, OpenEnv package 0.10.0, for names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from openenv_trl.types import Observation

ObsT = TypeVar("ObsT", bound=Observation)


class Transform(ABC, Generic[ObsT]):
    """Takes an observation and returns the one to send: the same, changed, or another."""

    @abstractmethod
    def __call__(self, observation: ObsT) -> ObsT:
        """Return what is sent in place of the observation."""


class CompositeTransform(Transform[Any]):
    """Transforms one after another."""

    def __init__(self, transforms: Iterable[Transform[Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, observation: Any) -> Any:
        """Return what the last transform makes of it."""
        for transform in self.transforms:
            observation = transform(observation)
        return observation


class NullTransform(Transform[Any]):
    """Changes nothing."""

    def __call__(self, observation: Any) -> Any:
        """Return the observation as it is."""
        return observation
