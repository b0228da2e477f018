"""Running a policy for measure: mean return with its interval, how episodes ended, and learning curves."""

from __future__ import annotations

from openenv_trl.evaluation.report import EvaluationReport, comparison_table
from openenv_trl.evaluation.run import evaluate
from openenv_trl.evaluation.statistics import MeanInterval, mean_interval

__all__ = ["EvaluationReport", "MeanInterval", "comparison_table", "evaluate", "mean_interval"]
