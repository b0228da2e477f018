"""What makes a step or an episode good: rubrics, their composition, and those that look at whole episodes."""

from openenv_trl.rubrics.rubric import Gate, Rubric, RubricDict, RubricList, Sequential, WeightedSum
from openenv_trl.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric, TrajectoryRubric

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
