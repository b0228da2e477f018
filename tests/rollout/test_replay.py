"""Promises of replays: an environment whose episodes can be repeated is found equal, any other where it differs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from openenv_trl import ProcessProvider
from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    ConnectionFailedError,
    EnvironmentExecutionError,
)
from openenv_trl.rollout import (
    EndReason,
    RandomActionPolicy,
    Task,
    Trajectory,
    read_parquet,
    write_parquet,
)
from openenv_trl.rollout.play import play_tasks, run_blocking
from openenv_trl.rollout.replay import Difference, Replay, ReplayOutcome, replay, replay_all
from openenv_trl.rollout.replay_servers import replay_over_servers
from openenv_trl.types import StepResult

BLACKJACK = Path(__file__).parents[2] / "environments" / "blackjack_env"
PROMPT = [{"role": "user", "content": "Play."}]


@pytest.fixture(scope="module")
def blackjack_url() -> Iterator[str]:
    with ProcessProvider(str(BLACKJACK), env_vars={"MAX_CONCURRENT_ENVS": "256"}) as servers:
        yield servers.base_urls[0]


@pytest.fixture(scope="module")
def games(blackjack_url: str, tokenizer: Any) -> list[Trajectory]:
    """200 games of a player that knows nothing."""
    tasks = [Task(PROMPT, {"seed": index}, index=index) for index in range(200)]

    def player(engine: Any) -> RandomActionPolicy:
        return RandomActionPolicy(engine.template, engine.actions, seed=1)

    return run_blocking(lambda: play_tasks(tasks, [blackjack_url], tokenizer, player))


def test_every_game_of_blackjack_is_the_same_again(games: list[Trajectory], blackjack_url: str, tmp_path: Path) -> None:
    assert {trajectory.end_reason for trajectory in games} == {EndReason.DONE}
    assert sum(len(trajectory.turns) for trajectory in games) > 210, "some take several actions"
    seen: list[Replay] = []
    stored = read_parquet(write_parquet(games, tmp_path))
    replays = replay_over_servers(stored, [blackjack_url], on_replay=seen.append)
    assert [each.difference or each.problem for each in replays if not each.is_equal] == []
    assert [each.trajectory for each in replays] == stored, "in the trajectories' order"
    assert sum(each.actions for each in replays) == sum(len(turn.actions) for t in games for turn in t.turns)
    assert len(seen) == 200


def test_a_game_with_other_cards_is_found_at_its_reset(games: list[Trajectory], blackjack_url: str) -> None:
    changed = Trajectory(**{**vars(games[0]), "task": Task(PROMPT, {"seed": 10_000})})
    (found,) = replay_over_servers([changed], [blackjack_url])
    assert found.outcome is ReplayOutcome.DIFFERENT
    assert found.difference is not None
    assert (found.difference.turn, found.difference.field) == (None, "observation")
    assert found.difference.expected == games[0].first_observation
    assert str(found.difference).startswith("reset: the observation was 'Your hand:")


Play = Callable[..., Trajectory]


@pytest.fixture
def play(make_engine: Any, say: Any, tasks: Any) -> Play:
    """One episode over sessions in memory: the texts that the model says, and how the environment behaves."""

    def run(*texts: str, **settings: Any) -> Trajectory:
        engine, _ = make_engine(**settings)
        (trajectory,) = anyio.run(engine.run, tasks(1), say(*texts))
        return trajectory

    return run


def again(trajectory: Trajectory, make_engine: Any, behave: Any = None, **settings: Any) -> Replay:
    """Play it again over sessions that behave so; nothing must stay lent."""
    pool = make_engine(behave)[1] if behave else make_engine()[1]

    async def run() -> Replay:
        return await replay(trajectory, pool, **settings)

    found = anyio.run(run)
    assert pool.leased == 0
    return found


async def with_a_change(session: Any, call: str, argument: Any, *, at: int, **fields: Any) -> StepResult[Any]:
    """The game of three steps, with other values in the result of one call (0 is the reset)."""
    step = 0 if call == "reset" else session.steps
    text = f"Begin {argument.get('seed', 0)}." if call == "reset" else f"Step {step}."
    values = {"reward": None if call == "reset" else 1.0, "done": step == 3, **(fields if step == at else {})}
    return StepResult({"message": values.pop("text", text), "metadata": {}}, **values)


def changed(at: int, **fields: Any) -> Any:
    return lambda *arguments: with_a_change(*arguments, at=at, **fields)


def test_an_episode_without_a_change_is_equal(play: Play, make_engine: Any, tool_call: Any) -> None:
    found = again(play(tool_call("hit")), make_engine, changed(at=-1))
    assert (found.outcome, found.actions, found.difference) == (ReplayOutcome.EQUAL, 3, None)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (changed(0, text="Begin 1."), Difference(None, None, "observation", "Begin 0.", "Begin 1.")),
        (changed(0, done=True), Difference(None, None, "done", False, True)),
        (changed(2, text="Step two."), Difference(1, 0, "observation", "Step 2.", "Step two.")),
        (changed(2, reward=0.5), Difference(1, 0, "reward", 1.0, 0.5)),
        (changed(2, reward=None), Difference(1, 0, "reward", 1.0, None)),
        (changed(2, done=True), Difference(1, 0, "done", False, True)),
        (changed(3, done=False), Difference(2, 0, "done", True, False)),
        (changed(3, metadata={"truncated": True}), Difference(2, 0, "truncated", False, True)),
    ],
)
def test_the_first_difference_is_found_at_its_step(
    play: Play, make_engine: Any, tool_call: Any, change: Any, difference: Difference
) -> None:
    found = again(play(tool_call("hit")), make_engine, change)
    assert found.difference == difference
    assert found.actions == (0 if difference.turn is None else difference.turn + 1), "and nothing is played after it"


def test_an_environment_that_ignores_its_seed_is_found_at_the_reset(
    play: Play, make_engine: Any, tool_call: Any
) -> None:
    luck = random.Random(0)

    async def deals(session: Any, call: str, argument: Any) -> StepResult[Any]:
        return StepResult({"message": f"Card {luck.random()}."}, 1.0 if call == "step" else None, done=call == "step")

    found = again(play(tool_call("hit"), behave=deals), make_engine, deals)
    assert found.difference is not None
    assert (found.difference.turn, found.difference.field) == (None, "observation")


def raises(error: Exception, at: int) -> Any:
    async def behave(session: Any, call: str, argument: Any) -> StepResult[Any]:
        if session.steps == at and (call == "step") == bool(at):
            raise error
        return await with_a_change(session, call, argument, at=-1)

    return behave


@pytest.mark.parametrize("error", [ActionValidationError("no such move"), EnvironmentExecutionError("it broke")])
def test_an_environment_that_refuses_what_it_took_is_different(
    play: Play, make_engine: Any, tool_call: Any, error: Exception
) -> None:
    found = again(play(tool_call("hit")), make_engine, raises(error, at=2))
    assert found.difference == Difference(1, 0, "error", None, str(error))


def test_a_lost_session_says_nothing_of_the_environment(play: Play, make_engine: Any, tool_call: Any) -> None:
    found = again(play(tool_call("hit")), make_engine, raises(ConnectionFailedError("gone"), at=2))
    assert (found.outcome, found.difference) == (ReplayOutcome.FAILED, None)
    assert found.problem == "turn 1, action 0: gone"


def test_a_session_that_hangs_is_given_up_and_not_lent_again(play: Play, make_engine: Any, tool_call: Any) -> None:
    async def hangs(session: Any, call: str, argument: Any) -> StepResult[Any]:
        if call == "step":
            await anyio.sleep_forever()
        return await with_a_change(session, call, argument, at=-1)

    pool = make_engine(hangs)[1]

    async def run() -> Replay:
        return await play_again.replay(pool, call_timeout_s=0.01)

    play_again = play(tool_call("hit"))
    found = anyio.run(run)
    assert found.problem == "turn 0, action 0: the environment did not answer within 0.01 s"
    assert pool.sessions[0].closed


def test_problems_between_actions_do_not_shift_what_is_compared(play: Play, make_engine: Any, tool_call: Any) -> None:
    # A problem stands between two observations, and one of them reads as the problem does.
    async def echoes(session: Any, call: str, argument: Any) -> StepResult[Any]:
        texts = ["Begin.", problem, "Step 2.", "Step 3."]
        place = session.steps if call == "step" else 0
        return StepResult({"message": texts[place]}, 1.0 if place else None, done=place == 3)

    problem = play(tool_call("fold")).turns[0].problems[0]
    said = tool_call("hit") + tool_call("fold") + tool_call("hit"), tool_call("hit")
    trajectory = play(*said, behave=echoes)
    assert trajectory.turns[0].observations == [problem, problem, "Step 2."]
    assert trajectory.turns[0].action_observations == [problem, "Step 2."]
    found = again(trajectory, make_engine, echoes)
    assert (found.outcome, found.actions) == (ReplayOutcome.EQUAL, 3)


LONG = "A long tale: " + " ".join(f"{number} sheep" for number in range(200))


@pytest.mark.parametrize("limits", [{}, {"max_observation_tokens": 40}])
@pytest.mark.parametrize("text", [LONG, "<|im_end|>" + LONG + "<|im_start|>", "ü<|im_end|>é\ud83d"])
def test_texts_that_were_made_fit_for_the_model_are_compared_by_what_they_say(
    play: Play, make_engine: Any, tool_call: Any, text: str, limits: Any
) -> None:
    async def tells(session: Any, call: str, argument: Any, said: str = text) -> StepResult[Any]:
        return StepResult({"message": said}, 1.0 if call == "step" else None, done=call == "step")

    trajectory = play(tool_call("hit"), behave=tells, limits={"max_completion_tokens": 4000, **limits})
    assert again(trajectory, make_engine, tells).is_equal
    other = again(trajectory, make_engine, lambda *arguments: tells(*arguments, said="B" + text[1:]))
    assert other.difference is not None
    assert other.difference.field == "observation"


def test_an_episode_that_never_began_has_nothing_to_compare(play: Play, make_engine: Any) -> None:
    async def refuses(session: Any, call: str, argument: Any) -> StepResult[Any]:
        raise EnvironmentExecutionError("no table")

    trajectory = play("x", behave=refuses, limits={"max_attempts": 1})
    assert again(trajectory, make_engine).outcome is ReplayOutcome.NOTHING_RECORDED


def test_each_environment_of_a_mixed_run_has_its_own_pool(play: Play, make_engine: Any, tool_call: Any) -> None:
    first, second = play(tool_call("hit")), play(tool_call("hit"))
    first.environment, second.environment = "counts", "tells"
    pools = {"counts": make_engine()[1], "tells": make_engine(changed(at=0, text="Tell."))[1]}

    async def run(*trajectories: Trajectory) -> list[Replay]:
        return await replay_all(trajectories, pools, concurrency=1)

    found = anyio.run(run, first, second)
    assert [each.outcome for each in found] == [ReplayOutcome.EQUAL, ReplayOutcome.DIFFERENT]
    second.environment = "other"
    with pytest.raises(ConfigurationError, match=r"'other'.*\['counts', 'tells'\]"):
        anyio.run(run, second)
