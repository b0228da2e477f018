"""Which level the next prompts are played at, from how the last ones went.

A controller is told the results of episodes, and asked for a level with a number drawn from outside: no clock, no
random numbers of its own. So ranks that hear the same results choose the same levels, and a run that is taken up again
goes on as it would have without the interruption.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import Trajectory
from openenv_trl.training.curriculum_settings import BandCurriculum, CurriculumLevel, StagedCurriculum
from openenv_trl.training.environments import ALONE


class CurriculumController(Protocol):
    """Decides about levels."""

    def level_for(self, draw: float) -> CurriculumLevel:
        """The level of the next prompt, given a number drawn from 0 to 1 (1 excluded)."""
        ...

    def observe(self, level: str, results: Sequence[float]) -> None:
        """Episodes of a level ended with these results, in this order. Unknown levels are ignored."""
        ...

    def state(self) -> dict[str, Any]:
        """All that it knows, as JSON has it."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Know what ``state`` told. Of levels that are not there any more nothing is kept."""
        ...

    def metrics(self) -> dict[str, float]:
        """Numbers to log."""
        ...


class StageController:
    """Level after level: see `StagedCurriculum`."""

    def __init__(self, settings: StagedCurriculum) -> None:
        self._settings = settings
        self._stage = 0
        self._recent: deque[float] = deque(maxlen=settings.window)

    @property
    def stage(self) -> int:
        """The present level's number, from 0."""
        return self._stage

    def level_for(self, draw: float) -> CurriculumLevel:
        """A passed level for the smallest draws, the present one for the others."""
        levels, review = self._settings.levels, self._settings.review_fraction
        if self._stage and draw < review:
            return levels[min(int(draw / review * self._stage), self._stage - 1)]
        return levels[self._stage]

    def observe(self, level: str, results: Sequence[float]) -> None:
        """Go on to the next level when the window is full and its mean high enough."""
        settings = self._settings
        for result in results:
            if level != settings.levels[self._stage].name:
                return
            self._recent.append(result)
            full = len(self._recent) == settings.window
            is_last = self._stage == len(settings.levels) - 1
            if full and not is_last and _mean(self._recent) >= settings.threshold:
                self._stage += 1
                self._recent.clear()

    def state(self) -> dict[str, Any]:
        """The present level and its latest results."""
        return {"level": self._settings.levels[self._stage].name, "recent": list(self._recent)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on at that level, if it is still there, and else from the beginning."""
        names = [level.name for level in self._settings.levels]
        known = state.get("level") in names
        self._stage = names.index(state["level"]) if known else 0
        self._recent = deque(state.get("recent", ()) if known else (), maxlen=self._settings.window)

    def metrics(self) -> dict[str, float]:
        """The present level's number from 0, and its mean result where there is one."""
        numbers = {"level": float(self._stage)}
        return numbers | ({"result": _mean(self._recent)} if self._recent else {})


class BandController:
    """Neither too easy nor too hard: see `BandCurriculum`."""

    def __init__(self, settings: BandCurriculum) -> None:
        self._settings = settings
        self._recent = {level.name: deque[float](maxlen=settings.window) for level in settings.levels}

    def level_for(self, draw: float) -> CurriculumLevel:
        """The level where the draw falls, each having its probability's share of the line."""
        probabilities = self.probabilities()
        for level in self._settings.levels:
            draw -= probabilities[level.name]
            if draw < 0:
                return level
        return max(self._settings.levels, key=lambda level: probabilities[level.name])

    def probabilities(self) -> dict[str, float]:
        """How likely each level is: those in the band alike, or the one nearest to it; the others explore."""
        settings = self._settings
        distances = {name: self._distance(recent) for name, recent in self._recent.items()}
        nearest = min(distances.values())
        chosen = [name for name, distance in distances.items() if distance <= nearest + 1e-9]
        everywhere = settings.explore_fraction / len(distances)
        here = (1.0 - settings.explore_fraction) / len(chosen)
        return {name: everywhere + (here if name in chosen else 0.0) for name in distances}

    def observe(self, level: str, results: Sequence[float]) -> None:
        """Keep the latest results of the level."""
        if level in self._recent:
            self._recent[level].extend(results)

    def state(self) -> dict[str, Any]:
        """The latest results of each level."""
        return {"recent": {name: list(recent) for name, recent in self._recent.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the results of the levels that are still there."""
        kept: Mapping[str, Sequence[float]] = state.get("recent", {})
        self._recent = {
            level.name: deque(kept.get(level.name, ()), maxlen=self._settings.window) for level in self._settings.levels
        }

    def metrics(self) -> dict[str, float]:
        """Each level's mean result, where there is one, and its probability."""
        numbers = {f"{name}/probability": value for name, value in self.probabilities().items()}
        return numbers | {f"{name}/result": _mean(recent) for name, recent in self._recent.items() if recent}

    def _distance(self, recent: Sequence[float]) -> float:
        """How far a level is outside the band; one that is not known yet is worth trying."""
        if not recent:
            return 0.0
        mean = _mean(recent)
        return max(self._settings.low - mean, mean - self._settings.high, 0.0)


class Curricula:
    """The curricula of a run, by environment.

    Args:
        settings: A curriculum for the only environment, or one for each of some environments by name.
        environments: The environments' names.

    Raises:
        ConfigurationError: A curriculum for an environment that is not there.
    """

    def __init__(
        self,
        settings: StagedCurriculum | BandCurriculum | Mapping[str, StagedCurriculum | BandCurriculum] | None,
        environments: Sequence[str],
    ) -> None:
        if settings is None:
            settings = {}
        elif not isinstance(settings, Mapping):
            if list(environments) != [ALONE]:
                raise ConfigurationError(
                    f"Several environments need a curriculum by name: curriculum={{{environments[0]!r}: ...}}."
                )
            settings = {ALONE: settings}
        unknown = sorted(set(settings) - set(environments))
        if unknown:
            raise ConfigurationError(
                f"There are curricula for {unknown}, and environments {sorted(environments)} only."
            )
        self._settings = dict(settings)
        self.controllers = {name: _controller(each) for name, each in self._settings.items()}

    def level_for(self, environment: str, draw: float, *, training: bool) -> CurriculumLevel | None:
        """The level of a prompt; an evaluation is always at the last one, so that it can be compared. None: no levels.

        Args:
            environment: Its name.
            draw: A number from 0 to 1 (1 excluded).
            training: Whether it is for training, and not an evaluation.
        """
        if environment not in self.controllers:
            return None
        if not training:
            return self._settings[environment].levels[-1]
        return self.controllers[environment].level_for(draw)

    def outcomes(self, trajectories: Sequence[Trajectory]) -> dict[str, dict[str, list[float]]]:
        """The results of the trajectories that have one, by environment and level."""
        found: dict[str, dict[str, list[float]]] = {}
        for trajectory in trajectories:
            settings = self._settings.get(trajectory.environment)
            level = trajectory.task.metadata.get("level")
            result = None if settings is None or level is None else settings.result_of(trajectory)
            if result is not None:
                found.setdefault(trajectory.environment, {}).setdefault(str(level), []).append(result)
        return found

    def observe(self, outcomes: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        """Tell the controllers what `outcomes` found, of all ranks."""
        for environment, levels in outcomes.items():
            for level, results in sorted(levels.items()):
                self.controllers[environment].observe(level, results)

    def state(self) -> dict[str, Any]:
        """What all controllers know, by environment, as JSON has it."""
        return {name: controller.state() for name, controller in self.controllers.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Know what ``state`` told; an empty state begins anew."""
        for name, controller in self.controllers.items():
            controller.restore(state.get(name, {}))

    def metrics(self) -> dict[str, float]:
        """The controllers' numbers; of one among several environments with its name before them."""
        return {
            f"{name}/{key}" if name != ALONE else key: value
            for name, controller in self.controllers.items()
            for key, value in controller.metrics().items()
        }


def _controller(settings: StagedCurriculum | BandCurriculum) -> CurriculumController:
    return StageController(settings) if isinstance(settings, StagedCurriculum) else BandController(settings)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
