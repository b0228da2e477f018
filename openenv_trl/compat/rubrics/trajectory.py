"""The names of ``openenv.core.rubrics.trajectory``."""

from openenv_trl.compat._names import names_of
from openenv_trl.rubrics import ExponentialDiscountingTrajectoryRubric, TrajectoryRubric

__all__ = ["ExponentialDiscountingTrajectoryRubric", "TrajectoryRubric"]

__getattr__ = names_of(__name__)
