"""A reset that brings the end of its episode is a failure; one that is over for good is not tried again."""

from __future__ import annotations

from typing import Any

import pytest

from openenv_trl.rollout import EndReason, RolloutLimits
from openenv_trl.training.action_tools import ActionTools
from openenv_trl.training.environment_episode import EnvironmentEpisode
from openenv_trl.training.environment_sessions import EnvironmentSessions, SessionSettings
from openenv_trl.types import StepResult

from .conftest import TOOLS, MemoryPool

pytestmark = pytest.mark.anyio
CUT_SHORT = [({"truncated": True}, 1), ({}, 3)]


def over(metadata: dict[str, Any]) -> Any:
    async def behave(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        return StepResult({"message": "They left."}, reward=0.0, done=True, metadata=metadata)

    return behave


@pytest.mark.parametrize(("metadata", "attempts"), CUT_SHORT)
async def test_an_episode_that_was_cut_short_before_it_began_is_tried_once(
    make_engine: Any, say: Any, tasks: Any, metadata: dict[str, Any], attempts: int
) -> None:
    engine, _ = make_engine(over(metadata), limits={"max_attempts": 3})
    (trajectory,) = await engine.run(tasks(1), say("nothing"))
    assert (trajectory.end_reason, trajectory.reward) == (EndReason.ENVIRONMENT_ERROR, None)
    assert trajectory.attempts == attempts
    assert ("They left." in str(trajectory.error)) == (attempts == 1)


@pytest.mark.parametrize(("metadata", "attempts"), CUT_SHORT)
def test_so_is_one_in_a_trainers_own_loop(metadata: dict[str, Any], attempts: int) -> None:
    settings = SessionSettings(limits=RolloutLimits(max_attempts=3, retry_delay_s=0.0))
    sessions = EnvironmentSessions(MemoryPool(over(metadata), TOOLS), settings, tools=ActionTools(tuple(TOOLS)))
    episode = EnvironmentEpisode(sessions)
    try:
        (begun,) = sessions.submit([lambda: episode.begin({})])
        assert begun.result() is None
    finally:
        sessions.close()
    assert (episode.progress.end_reason, episode.progress.attempts) == (EndReason.ENVIRONMENT_ERROR, attempts)
