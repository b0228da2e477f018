"""The names of ``openenv.core.rubrics.containers``."""

from openenv_trl.compat._names import names_of
from openenv_trl.rubrics import Gate, RubricDict, RubricList, Sequential, WeightedSum

__all__ = ["Gate", "RubricDict", "RubricList", "Sequential", "WeightedSum"]

__getattr__ = names_of(__name__)
