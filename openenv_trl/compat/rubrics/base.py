"""The names of ``openenv.core.rubrics.base``."""

from openenv_trl.compat._names import names_of
from openenv_trl.rubrics import Rubric

__all__ = ["Rubric"]

__getattr__ = names_of(__name__)
