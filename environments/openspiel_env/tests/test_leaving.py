"""Whatever the way in which a player leaves a match, the others are told at once, and not by a turn's timeout."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from openspiel_env import OpenSpielAction, OpenSpielEnv, OpenSpielObservation
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.settings import MatchSettings

from openenv_trl.client import GenericEnvClient, fetch_schema
from openenv_trl.client.peers import Wire
from openenv_trl.providers import ProcessProvider, SessionPool
from openenv_trl.rollout import EndReason, RolloutEngine, RolloutLimits, ScriptedMessagePolicy, Task, total_reward
from openenv_trl.rollout.policy import FailedCompletion, MessagePolicy, Reply
from openenv_trl.rollout.trajectory import Trajectory

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[1]
NEVER = "3600"  # seconds: who is told by a timeout only is told in no test
VARIABLES = {
    "OPENSPIEL_GAME": "tic_tac_toe",
    "OPENSPIEL_TURN_TIMEOUT_S": NEVER,
    "OPENSPIEL_JOIN_TIMEOUT_S": NEVER,
    "OPENENV_TRL_RESUME_TIMEOUT_S": NEVER,
}
LEFT = {"match_end": "left", "match_end_player": 1, "truncated": True}


@pytest.fixture(scope="module")
def squares() -> Iterator[str]:
    with ProcessProvider(str(PACKAGE), env_vars=VARIABLES) as provider:
        yield provider.replicas[0].base_url


async def leave_by_close(env: GenericEnvClient, pool: Pool) -> None:
    await env.close()


async def leave_by_disconnect(env: GenericEnvClient, pool: Pool) -> None:
    await env.disconnect()


async def leave_by_reset(env: GenericEnvClient, pool: Pool) -> None:
    await env.reset(seed=0)


async def leave_by_a_reset_for_another_match(env: GenericEnvClient, pool: Pool) -> None:
    with anyio.move_on_after(0.0):  # where nobody else comes: what matters is that it was sent
        await env.reset(match="another", opponent_policy="session")


async def leave_to_the_pool(env: GenericEnvClient, pool: Pool) -> None:
    (lease,) = [each for each in pool.leases if each.session is env]
    await pool.release(lease)
    assert pool.metrics().idle == 0


class Pool(SessionPool[GenericEnvClient]):
    """Knows what it has lent."""

    def __init__(self, url: str, wire: Wire = "auto") -> None:
        async def connect(base_url: str) -> GenericEnvClient:
            return await GenericEnvClient(base_url, wire=wire)

        super().__init__([url], connect, sessions_per_server=2)
        self.leases: list[Any] = []

    async def acquire(self, timeout_s: float | None = None) -> Any:
        self.leases.append(await super().acquire(timeout_s))
        return self.leases[-1]


WAYS = [leave_by_close, leave_by_disconnect, leave_by_reset, leave_by_a_reset_for_another_match, leave_to_the_pool]


@pytest.mark.parametrize("wire", ["native", "openenv"])
@pytest.mark.parametrize("way", WAYS)
async def test_who_waits_is_told_at_once_that_the_other_has_left(
    squares: str, way: Callable[[GenericEnvClient, Pool], Awaitable[None]], wire: Wire
) -> None:
    async with Pool(squares, wire) as pool, anyio.create_task_group() as group:
        leaves = (await pool.acquire()).session

        async def leave() -> None:
            arguments = {"match": way.__name__, "agent_player": 1, "opponent_policy": "session"}
            assert (await leaves.reset(**arguments)).metadata["others_wait"] is True
            assert leaves.others_wait
            await way(leaves, pool)

        group.start_soon(leave)
        async with OpenSpielEnv(squares) as stays:
            await stays.reset(match=way.__name__, opponent_policy="session")
            result = await stays.step(OpenSpielAction(action_id=4))
            assert (result.done, result.reward) == (True, 0.0)
            assert result.observation.metadata == LEFT
            assert result.observation.message == "The match has ended without a result: Player 1 left it."
            assert not stays.others_wait


async def test_a_session_whose_match_is_over_is_kept_by_the_pool(squares: str) -> None:
    async with Pool(squares) as pool, anyio.create_task_group() as group:
        sessions = [(await pool.acquire()).session for _ in range(2)]

        async def play(player: int) -> None:
            result = await sessions[player].reset(match="kept", agent_player=player, opponent_policy="session")
            while not result.done:
                result = await sessions[player].step({"action_id": result.observation["legal_actions"][0]})
            await pool.release(pool.leases[player])

        for player in range(2):
            group.start_soon(play, player)
        while pool.metrics().in_use:
            await anyio.lowlevel.checkpoint()
        assert pool.metrics().idle == 2
        await pool.acquire()
        await sessions[1].reset(seed=0)  # alone against a policy: nobody waits
        await pool.release(pool.leases[-1])
        assert pool.metrics().idle == 2


KILLED = """
import sys, anyio
from openspiel_env import OpenSpielAction, OpenSpielEnv

async def main():
    async with OpenSpielEnv(sys.argv[1], wire=sys.argv[2]) as env:
        await env.reset(match=f"killed {sys.argv[2:]}", agent_player=1, opponent_policy="session")
        if sys.argv[3] == "waits":
            await env.step(OpenSpielAction(action_id=1))
        print("its turn", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.mark.parametrize("wire", ["native", "openenv"])
@pytest.mark.parametrize("when", ["its turn", "waits"])
async def test_who_waits_is_told_that_the_others_process_was_killed(squares: str, wire: str, when: str) -> None:
    command = [sys.executable, "-c", KILLED, squares, wire, when]
    async with OpenSpielEnv(squares) as stays, await anyio.open_process(command, stderr=None) as process:
        try:
            await stays.reset(match=f"killed {[wire, when]}", opponent_policy="session")
            if when == "waits":
                assert not (await stays.step(OpenSpielAction(action_id=0))).done
                process.kill()
                await process.wait()
                result = await stays.step(OpenSpielAction(action_id=4))
            else:
                async with anyio.create_task_group() as group:

                    async def kill() -> None:
                        assert process.stdout is not None
                        await process.stdout.receive()
                        process.kill()

                    group.start_soon(kill)
                    result = await stays.step(OpenSpielAction(action_id=4))
            assert result.done
            assert result.observation.metadata == result.observation.metadata | LEFT
        finally:
            if process.returncode is None:
                process.kill()


@pytest.mark.parametrize("how", ["left", "turn_timeout"])
async def test_who_leaves_loses_where_that_is_asked_for(how: str) -> None:
    game = environment_class("tic_tac_toe")
    patience_s = 0.05 if how == "turn_timeout" else 3600.0
    asked = MatchSettings(opponent_policy="session", on_leave="loss", turn_timeout_s=patience_s)
    stays, leaves = game(asked), game(asked)
    seen: list[OpenSpielObservation] = []

    async def stay() -> None:
        await stays.reset_async(match="lost")
        seen.append(await stays.step_async(OpenSpielAction(action_id=4)))

    async with anyio.create_task_group() as group:
        group.start_soon(stay)
        await leaves.reset_async(match="lost", agent_player=1)
        if how == "left":
            leaves.close()
    assert (seen[0].done, seen[0].reward) == (True, 1.0)
    assert seen[0].metadata == {"match_end": how, "match_end_player": 1}
    why = "left it" if how == "left" else "did not move in time"
    assert seen[0].message == f"The match has ended: Player 1 {why}. Player 1 loses."
    if how == "turn_timeout":
        late = await leaves.step_async(OpenSpielAction(action_id=0))
        assert (late.done, late.reward) == (True, -1.0)
        assert late.message == "The match has ended: You did not move in time. You lose."


async def test_what_leaving_means_is_one_of_the_terms_of_a_match() -> None:
    game = environment_class("matrix_rps")
    agreed, other, also = (game(MatchSettings(opponent_policy="session")) for _ in range(3))
    async with anyio.create_task_group() as group, anyio.create_task_group() as pair:
        group.start_soon(lambda: other.reset_async(match="terms", agent_player=1))
        await anyio.lowlevel.checkpoint()
        pair.start_soon(lambda: agreed.reset_async(match="terms", on_leave="loss"))
        pair.start_soon(lambda: also.reset_async(match="terms", agent_player=1, on_leave="loss"))
        while agreed.state.match is None or also.state.match is None:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert [each.state.match for each in (agreed, also, other)] == ["terms", "terms", None]


def any_move(messages: Sequence[Any]) -> Any:
    listed = re.findall(r"Your moves: (.*)\.$", str(messages[-1]["content"]), re.MULTILINE)[-1]
    return calling("play", {"move": listed.split(", ")[0]})


def calling(name: str, arguments: dict[str, Any]) -> Any:
    call = {"type": "function", "id": "1", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def readme_reward() -> Callable[..., list[float | None]]:
    """The README's reward function that learns nothing from a match without a result."""
    blocks = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [each for each in blocks if "RewardFunction(" in each]
    names: dict[str, Any] = {}
    exec(block, names)
    return names["reward"]


async def play_sides(
    pool: SessionPool[GenericEnvClient],
    match: str,
    limits: RolloutLimits,
    policy: MessagePolicy,
    *,
    leaver: int = 1,
    no_more: anyio.Event | None = None,
) -> list[Trajectory]:
    """Play both sides of a match: the leaver's with these limits and policy, the other's to its end, which comes first.

    The leaver's whole run is cancelled at ``no_more``; its trajectory is then missing.
    """
    ended: dict[int, Trajectory] = {}

    async def side(player: int, limits: RolloutLimits, policy: MessagePolicy) -> None:
        engine = RolloutEngine(pool, None, limits=limits, fetch_schema=fetch_schema)
        reset = {"match": match, "agent_player": player, "opponent_policy": "session"}
        task = Task([{"role": "user", "content": f"Play as player {player}."}], reset)
        (ended[player],) = await engine.run([task], policy)

    async with anyio.create_task_group() as group, anyio.create_task_group() as leaving:
        leaving.start_soon(side, leaver, limits, policy)
        group.start_soon(side, 1 - leaver, RolloutLimits(max_turns=9), ScriptedMessagePolicy(any_move))
        if no_more is not None:
            await no_more.wait()
            leaving.cancel_scope.cancel()
    return [ended[player] for player in (1 - leaver, leaver) if player in ended]


def gives_up(messages: Sequence[Any]) -> Any:
    return {"role": "assistant", "content": "I give up."}


def calls_nothing(messages: Sequence[Any]) -> Any:
    return calling("surrender", {})


class Unable:
    """A policy that generates nothing: it fails, is cut, or never comes to an end."""

    def __init__(self, reply: Reply | FailedCompletion | None) -> None:
        self._reply = reply
        self.asked = anyio.Event()

    async def respond(self, *_: Any) -> Reply | FailedCompletion:
        self.asked.set()
        if self._reply is None:
            await anyio.sleep_forever()
        assert self._reply is not None
        return self._reply


FAILED = FailedCompletion("it broke", retryable=False)
CUT = Reply({"role": "assistant", "content": "Well, I would say that"}, finished=False)


@pytest.mark.parametrize(
    ("limits", "policy", "reason"),
    [
        ({"max_turns": 1}, lambda: ScriptedMessagePolicy(any_move), EndReason.MAX_TURNS),
        ({}, lambda: Unable(CUT), EndReason.MAX_TOKENS),
        ({}, lambda: ScriptedMessagePolicy(gives_up), EndReason.NO_ACTION),
        ({"max_invalid_actions": 0}, lambda: ScriptedMessagePolicy(calls_nothing), EndReason.INVALID_ACTION),
        ({}, lambda: Unable(FAILED), EndReason.GENERATION_FAILED),
        ({"generate_timeout_s": 0.2}, lambda: Unable(None), EndReason.GENERATE_TIMEOUT),
    ],
)
async def test_an_episode_that_ends_before_its_match_ends_that_of_the_other_side(
    squares: str, limits: dict[str, Any], policy: Callable[[], MessagePolicy], reason: EndReason
) -> None:
    async with Pool(squares) as pool:
        stays, leaves = await play_sides(pool, reason.value, RolloutLimits(max_attempts=1, **limits), policy())
    assert leaves.end_reason is reason
    assert (stays.end_reason, total_reward(stays)) == (EndReason.TRUNCATED, 0.0)
    assert readme_reward()(trajectory=[stays]) == [None]
    assert "Player 1 left it" in str(stays.turns[-1].observations)


async def test_a_run_that_is_cancelled_ends_the_episodes_of_the_other_side(squares: str) -> None:
    policy = Unable(None)
    async with Pool(squares) as pool:
        (stays,) = await play_sides(pool, "cancelled", RolloutLimits(), policy, no_more=policy.asked)
    assert (stays.end_reason, total_reward(stays)) == (EndReason.TRUNCATED, 0.0)


async def test_an_episode_whose_other_side_left_before_its_first_move_fails_once_and_is_not_tried_in_vain(
    squares: str,
) -> None:
    async with Pool(squares) as pool:
        policy = ScriptedMessagePolicy(gives_up)
        stays, leaves = await play_sides(pool, "no move", RolloutLimits(), policy, leaver=0)
    assert leaves.end_reason is EndReason.NO_ACTION
    assert (stays.end_reason, stays.reward, stays.attempts) == (EndReason.ENVIRONMENT_ERROR, None, 1)
    assert "done before the first step: The match has ended without a result: Player 0 left it." in str(stays.error)
