"""More episodes than a group needs, so that a few may fail or be slow."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class NoOverSampling(BaseModel):
    """Each task is played once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["none"] = "none"


class OverSampleGroups(BaseModel):
    """Each group plays some episodes more than it has tasks, and keeps as many sound ones as it has tasks.

    An episode is sound if it did not fail. Rewards have no say in which are kept.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["extra"] = "extra"
    extra: int = Field(default=1, ge=1)
    """Episodes more in each group. Tasks without a group (``Task.group`` None) get none: nothing compares them."""
    surplus: Literal["cut", "finish"] = "cut"
    """``cut``: the first sound ones in time are kept, and the others end at once. Quick, but short episodes are kept
    more often than long ones; the bias report says by how much. ``finish``: all are played to their end, and the
    sound ones are kept in the order of their places, the extra ones last: no bias, and nobody is spared the wait."""
