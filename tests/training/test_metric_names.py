"""The page of metrics names every number that the adapters log, and no other."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from openenv_trl.providers.replica_pool.metrics import ReplicaPoolMetrics
from openenv_trl.rollout import EndReason
from openenv_trl.training.curriculum import BandController, StageController
from openenv_trl.training.curriculum_settings import BandCurriculum, CurriculumLevel, StagedCurriculum
from openenv_trl.training.environment_batch import batch_metrics
from openenv_trl.training.episode_progress import EpisodeProgress

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def names_of(heading: str) -> set[str]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.M))


def test_the_numbers_of_an_adapter_to_the_trainers_own_loop_are_those_of_the_page() -> None:
    failed = EpisodeProgress(end_reason=EndReason.STEP_TIMEOUT)
    given = set(batch_metrics([EpisodeProgress(end_reason=EndReason.DONE), failed]))
    assert {name.replace("step_timeout", "<reason>") for name in given} == names_of(
        "`environment_factory` and `reward_funcs`"
    )


def test_the_numbers_of_curricula_are_those_of_the_page() -> None:
    levels = (CurriculumLevel(name="easy"), CurriculumLevel(name="hard"))
    stages, band = StageController(StagedCurriculum(levels=levels)), BandController(BandCurriculum(levels=levels))
    for controller in (stages, band):
        controller.observe("easy", [1.0])
    given = {name.replace("easy", "<level>").replace("hard", "<level>") for name in band.metrics()} | set(
        stages.metrics()
    )
    given |= set(stages.metrics())
    assert {f"curriculum/{name}" for name in given} == names_of("Curricula")


def test_the_numbers_of_a_pool_of_replicas_are_those_of_the_page() -> None:
    assert {f"pool/{field.name}" for field in fields(ReplicaPoolMetrics)} == names_of("Pools of replicas")
