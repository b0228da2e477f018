"""The settings of a curriculum: the levels of an environment, and when each is played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from typing_extensions import Self

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import Trajectory
from openenv_trl.settings_errors import problems


class CurriculumLevel(BaseModel):
    """One level of difficulty."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    """What it is called in logs and checkpoints."""
    reset: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the environment's ``reset`` that make the level, such as ``{"size": 4}``. They come before the
    dataset row's own."""


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    levels: tuple[CurriculumLevel, ...] = Field(min_length=1)
    """The levels, the easiest first."""
    measure: Literal["success", "reward"] = "success"
    """What an episode's result is: "success" is 1 for a finished episode whose reward is at least ``success_reward``,
    and 0 for any other; "reward" is the environment's reward itself."""
    success_reward: float = 1.0
    """The reward that counts as a success; most environments give 1 for it."""

    @model_validator(mode="after")
    def _names_are_different(self) -> Self:
        names = [level.name for level in self.levels]
        if len(set(names)) < len(names):
            raise ValueError(f"the levels need different names, not {names}")
        return self

    def result_of(self, trajectory: Trajectory) -> float | None:
        """An episode's result; None where there is none to judge the level by: it failed, or was not rewarded."""
        reward = trajectory.reward
        if trajectory.end_reason.is_failure:
            return None
        if self.measure == "reward":
            return reward
        if trajectory.end_reason.is_unfinished:
            return 0.0
        return None if reward is None else float(reward >= self.success_reward)


class StagedCurriculum(_Settings):
    """Level after level: the next begins when the present one goes well enough, and none is gone back to for good."""

    kind: Literal["stages"] = "stages"
    """Tells it from other curricula in a file."""
    threshold: float = Field(default=0.8, allow_inf_nan=False)
    """The mean result, over the window, at which the next level begins. At 0.8 a success is the rule, and groups
    still differ now and then, so that something is learned until the change."""
    window: int = Field(default=256, ge=1)
    """Episodes of the present level, the latest ones, that the mean is over: the standard error of a success rate is
    then at most 0.03."""
    review_fraction: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Part of the prompts that are played at a level already passed, so that it is not forgotten."""


class BandCurriculum(_Settings):
    """Whatever is neither too easy nor too hard: the levels whose mean result lies in a band.

    Where all generations of a prompt succeed, or all fail, their advantages are zero: a group teaches most where
    success and failure are both likely (the variance of a success of probability p is p (1 - p)).
    """

    kind: Literal["band"] = "band"
    """Tells it from other curricula in a file."""
    low: float = Field(default=0.2, allow_inf_nan=False)
    """A level of a smaller mean result is too hard for now."""
    high: float = Field(default=0.8, allow_inf_nan=False)
    """A level of a larger mean result is too easy."""
    window: int = Field(default=128, ge=1)
    """Episodes of each level, the latest ones, that its mean is over."""
    explore_fraction: float = Field(default=0.1, gt=0.0, le=1.0)
    """Part of the prompts that are played at any level, all equally likely, so that what is known of it stays true."""

    @model_validator(mode="after")
    def _the_band_is_one(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low={self.low:g} must be less than high={self.high:g}")
        return self


CurriculumSettings = Annotated[StagedCurriculum | BandCurriculum, Field(discriminator="kind")]
"""Any curriculum; ``kind`` tells which."""

_READER: TypeAdapter[StagedCurriculum | BandCurriculum] = TypeAdapter(CurriculumSettings)


def read_curriculum(values: Mapping[str, Any]) -> StagedCurriculum | BandCurriculum:
    """The curriculum that a mapping describes, such as one of a YAML file.

    Raises:
        ConfigurationError: A setting is unknown, missing, or cannot be used.
    """
    try:
        return _READER.validate_python({"kind": "stages", **values})
    except ValidationError as error:
        wrong = problems(error, CurriculumSettings)
        raise ConfigurationError(f"The curriculum cannot be used: {wrong}.") from error
