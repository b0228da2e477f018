"""The names of ``openenv.core.rubrics``."""

from openenv_trl.compat._names import names_of
from openenv_trl.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Rubric,
    RubricDict,
    RubricList,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
)

__all__ = [
    "ExponentialDiscountingTrajectoryRubric",
    "Gate",
    "Rubric",
    "RubricDict",
    "RubricList",
    "Sequential",
    "TrajectoryRubric",
    "WeightedSum",
]

__getattr__ = names_of(__name__)
