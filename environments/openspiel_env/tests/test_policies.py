"""A policy plays as its name says, from its seed, sees what its player sees, and stops nobody else's game."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pyspiel
import pytest
from openspiel_env import OpenSpielAction, OpenSpielEnv
from openspiel_env.server import games
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.opponents import Policy, SeatPolicy, policy_for
from openspiel_env.server.settings import MatchSettings, settings_from_variables

from openenv_trl.client import GenericEnvClient
from openenv_trl.errors import ConfigurationError, SessionStateError
from openenv_trl.providers import ProcessProvider

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[1]
TESTS = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def importable_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTS))


def returns(play_match: Any, name: str, policy: str, matches: int, **reset_arguments: Any) -> list[float]:
    """Of random play against a policy."""
    environment = environment_class(name)()
    return [
        sum(
            seen.reward or 0.0
            for seen in play_match(environment, seed, seed=seed, opponent_policy=policy, **reset_arguments)
        )
        for seed in range(matches)
    ]


def shares(policy: Policy, state: Any, player: int, draws: int = 4000) -> dict[int, float]:
    generator = random.Random(1)
    chosen = [policy.choose(state, player, generator) for _ in range(draws)]
    return {action: chosen.count(action) / draws for action in state.legal_actions(player)}


def test_minimax_never_loses_tic_tac_toe_and_meets_every_best_play_with_a_draw(play_match: Any) -> None:
    assert max(returns(play_match, "tic_tac_toe", "minimax", 60)) == 0.0
    assert max(returns(play_match, "tic_tac_toe", "minimax", 60, agent_player=1)) <= 0.0
    perfect = policy_for(SeatPolicy("minimax"), games.load("tic_tac_toe", {}), {})
    environment, generator = environment_class("tic_tac_toe")(), random.Random(3)
    for seed in range(10):
        seen = environment.reset(seed=seed, opponent_policy="minimax")
        while not seen.done:
            assert environment._match is not None
            state = environment._match.state
            seen = environment.step(OpenSpielAction(action_id=perfect.choose(state, 0, generator)))
        assert seen.reward == 0.0


def test_looking_ahead_sees_as_many_moves_as_it_is_told() -> None:
    # x has two in a row, and o to move has two of its own in another row.
    state = pyspiel.load_game("tic_tac_toe").new_initial_state()
    for square in (0, 3, 1, 4, 8):
        state.apply_action(square)
    game, generator = games.load("tic_tac_toe", {}), random.Random(0)
    for seat in (SeatPolicy("greedy"), SeatPolicy("minimax", 1), SeatPolicy("minimax", 2)):
        policy = policy_for(seat, game, {})
        assert {policy.choose(state, 1, generator) for _ in range(20)} == {5}  # which wins at once
    for seat in (SeatPolicy("minimax", 3), SeatPolicy("minimax")):
        policy = policy_for(seat, game, {})
        assert {policy.choose(state, 1, generator) for _ in range(50)} == {2, 5}  # which threatens to, in two ways
    state = pyspiel.load_game("tic_tac_toe").new_initial_state()
    for square in (0, 4, 1):
        state.apply_action(square)
    blind, wary = policy_for(SeatPolicy("greedy"), game, {}), policy_for(SeatPolicy("minimax", 2), game, {})
    assert len({blind.choose(state, 1, generator) for _ in range(100)}) == 6
    assert {wary.choose(state, 1, generator) for _ in range(100)} == {2}  # else x wins


def test_more_simulations_play_better(play_match: Any) -> None:
    few = statistics.fmean(returns(play_match, "connect_four", "mcts:2", 40))
    many = statistics.fmean(returns(play_match, "connect_four", "mcts:100", 40))
    assert many < -0.9
    assert many < few


def test_cfr_cannot_be_exploited_at_poker_and_mixes_its_moves() -> None:
    rules = pyspiel.load_game("kuhn_poker")
    policy = policy_for(SeatPolicy("cfr", 500), games.load("kuhn_poker", {}), {})
    played: dict[str, list[tuple[int, float]]] = {}
    left = [rules.new_initial_state()]
    while left:
        state = left.pop()
        if state.is_terminal():
            continue
        if not state.is_chance_node() and state.information_state_string() not in played:
            mixed = shares(policy, state, state.current_player())
            played[state.information_state_string()] = list(mixed.items())
        left.extend(state.child(action) for action in state.legal_actions())
    assert pyspiel.exploitability(rules, dict(played)) < 0.02
    assert pyspiel.exploitability(rules, {key: [(0, 0.5), (1, 0.5)] for key in played}) > 0.3
    assert any(0.1 < share < 0.9 for mixed in played.values() for _, share in mixed)


def test_cfr_plays_games_in_which_all_choose_at_once() -> None:
    state = pyspiel.load_game("matrix_brps").new_initial_state()  # where scissors beaten by rock count for more
    policy = policy_for(SeatPolicy("cfr", 2000), games.load("matrix_brps", {}), {})
    for player in (0, 1):
        mixed = shares(policy, state, player)
        for other in range(3):
            earned = 0.0
            for own, share in mixed.items():
                after = state.clone()
                after.apply_actions([own, other] if player == 0 else [other, own])
                earned += share * after.returns()[player]
            assert earned > -0.7  # pure play loses up to 50
    goofspiel = games.load("goofspiel", {"num_cards": 3, "points_order": "descending", "imp_info": True})
    bids = policy_for(SeatPolicy("cfr", 50), goofspiel, {})
    state = goofspiel.rules.new_initial_state()
    state.apply_actions([0, 2])
    assert sum(shares(bids, state, 1, 50).values()) == 1.0


def test_each_player_can_have_a_policy_of_its_own() -> None:
    environment = environment_class("kuhn_poker")()
    for seed in range(10):
        environment.reset(seed=seed, game_params={"players": 4}, agent_player=3, opponent_policy="last,first,last,cfr")
        assert environment._match is not None
        assert environment._match.state.history()[4:] == [1, 0, 1]
    assert environment.state.opponent_policy == "last,first,last,cfr"
    with pytest.raises(ConfigurationError, match=r"names 2 policies, and the game has 4"):
        environment.reset(game_params={"players": 4}, opponent_policy="last,first")


@pytest.mark.parametrize(
    ("name", "policy", "text"),
    [
        ("kuhn_poker", "mcts", r"does not see all of it.*cfr"),
        ("goofspiel", "minimax", "does not see all of it"),
        ("pig", "mcts:0", "from 1 to"),
        ("tic_tac_toe", "mcts:20000", "from 1 to 10000"),
        ("tic_tac_toe", "mcts:many", "from 1 to"),
        ("tic_tac_toe", "minimax:11", "from 1 to 10"),
        ("tic_tac_toe", "random:3", "takes no number"),
        ("tic_tac_toe", "greedy:3", "no number"),
        ("tic_tac_toe", "", "no policy ''"),
        ("tic_tac_toe", "own_policies:corner", "no policy 'own_policies'"),
        ("connect_four", "minimax", "more than 50000 positions"),
        ("liars_dice", "cfr", "more than 100000 histories"),
        ("oshi_zumo", "cfr", "more than 100000 histories"),
        ("coop_box_pushing", "cfr", "what a player knows"),
        ("clobber", "cfr:0", "from 1 to"),
        ("backgammon", "session", "give match="),
    ],
)
def test_a_policy_that_cannot_play_says_why_and_the_match_before_goes_on(name: str, policy: str, text: str) -> None:
    environment = environment_class(name)()
    environment.reset(seed=4, episode_id="fourth")
    with pytest.raises(ConfigurationError, match=text):
        environment.reset(seed=5, opponent_policy=policy)
    assert environment.state.episode_id == "fourth"
    assert environment.state.opponent_policy == "random"


def test_own_policies_are_named_by_the_server_alone(play_match: Any) -> None:
    settings = MatchSettings(policies={"corner": "own_policies:corner"})
    environment = environment_class("tic_tac_toe")(settings)
    for seed in range(20):
        assert environment.reset(seed=seed, agent_player=1, opponent_policy="corner").opponent_last_action in (
            0,
            2,
            6,
            8,
        )
    with pytest.raises(ConfigurationError, match=r"does not know 'policies'"):
        environment.reset(policies={"mine": "os:abort"})
    with pytest.raises(ConfigurationError, match=r"no policy 'corner'"):
        environment_class("tic_tac_toe")().reset(opponent_policy="corner")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('{"mcts": "a:b"}', "'mcts' is taken"),
        ('{"a:b": "a:b"}', "colon"),
        ('["a:b"]', "policies"),
        ("corner", "OPENSPIEL_POLICIES must be a JSON object"),
    ],
)
def test_names_of_own_policies_that_cannot_be_used_are_refused(value: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        settings_from_variables({"OPENSPIEL_POLICIES": value})


@pytest.mark.parametrize("path", ["no_such_module:f", "own_policies:f", "own_policies", "own_policies:__doc__"])
def test_an_own_policy_that_cannot_be_imported_stops_the_servers_start(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'mine'.*'" + path):
        environment_class("tic_tac_toe").prepare(MatchSettings(policies={"mine": path}))


@pytest.mark.parametrize(("policy", "error"), [("impossible", ConfigurationError), ("broken", ZeroDivisionError)])
async def test_a_policy_that_fails_ends_its_match_and_not_the_session(policy: str, error: type[Exception]) -> None:
    settings = MatchSettings(policies={policy: f"own_policies:{policy}"})
    for asynchronous in (False, True):
        environment = environment_class("tic_tac_toe")(settings)
        environment.reset(seed=0, opponent_policy=policy)
        if asynchronous:
            with pytest.raises(error):
                await environment.step_async(OpenSpielAction(action_id=0))
        else:
            with pytest.raises(error):
                environment.step(OpenSpielAction(action_id=0))
        with pytest.raises(SessionStateError, match="over"):
            environment.step(OpenSpielAction(action_id=1))
        assert environment.reset(seed=0).legal_actions == list(range(9))


REPLAYED = [
    ("tic_tac_toe", "mcts:50", {}),
    ("connect_four", "minimax:2", {}),
    ("tic_tac_toe", "minimax", {}),
    ("tic_tac_toe", "greedy", {"agent_player": 1}),
    ("kuhn_poker", "cfr:100", {"agent_player": 1}),
    ("tic_tac_toe", "corner", {}),
    ("2048", "random", {}),
    ("goofspiel", "random", {"game_params": {"num_cards": 4}}),
    ("leduc_poker", "random", {"agent_player": 1}),
]
REPLAY = """
import json, random, sys
from openspiel_env import OpenSpielAction
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.settings import MatchSettings

played = []
for name, policy, arguments in json.loads(sys.argv[1]):
    environment = environment_class(name)(MatchSettings(policies={"corner": "own_policies:corner"}))
    for seed in range(4):
        generator = random.Random(seed)
        seen = environment.reset(seed=seed, opponent_policy=policy, **arguments)
        while not seen.done:
            seen = environment.step(OpenSpielAction(action_id=generator.choice(seen.legal_actions)))
            played.append(seen.model_dump())
print(json.dumps(played))
"""


def test_a_seed_decides_what_every_policy_does_in_every_process() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", REPLAY, json.dumps(REPLAYED)], cwd=TESTS, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert len(json.loads(runs[0])) > 60


async def test_waiting_for_a_policy_and_playing_at_once_give_the_same_match() -> None:
    for name, policy, arguments in REPLAYED:
        settings = MatchSettings(policies={"corner": "own_policies:corner"})
        blocking, waiting = environment_class(name)(settings), environment_class(name)(settings)
        for seed in range(3):
            seen = blocking.reset(seed=seed, opponent_policy=policy, **arguments)
            assert await waiting.reset_async(seed=seed, opponent_policy=policy, **arguments) == seen
            while not seen.done:
                action = OpenSpielAction(action_id=seen.legal_actions[seed % len(seen.legal_actions)])
                seen = blocking.step(action)
                assert await waiting.step_async(action) == seen


@pytest.fixture
def gated_server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    variables = {
        "OPENSPIEL_GAME": "tic_tac_toe",
        "OPENSPIEL_POLICIES": json.dumps({"held_up": "own_policies:held_up"}),
        "OPENSPIEL_TEST_GATE": str(tmp_path / "open"),
        "PYTHONPATH": str(TESTS),
    }
    with ProcessProvider(str(PACKAGE), env_vars=variables) as provider:
        yield provider.replicas[0].base_url, tmp_path


async def test_a_policy_that_computes_for_long_keeps_no_other_session_waiting(gated_server: tuple[str, Path]) -> None:
    url, folder = gated_server
    async with OpenSpielEnv(url) as slow, GenericEnvClient(url) as quick, anyio.create_task_group() as group:
        await slow.reset(seed=1, opponent_policy="held_up")
        stepped: list[Any] = []

        async def step() -> None:
            stepped.append(await slow.step(OpenSpielAction(action_id=8)))

        group.start_soon(step)
        while not (folder / "entered").exists():
            await anyio.lowlevel.checkpoint()
        for seed in range(20):
            result = await quick.reset(seed=seed)
            while not result.done:
                result = await quick.step({"action_id": result.observation["legal_actions"][0]})
        assert not stepped
        (folder / "open").touch()
    assert stepped[0].observation.opponent_last_action == 0


async def test_a_client_can_name_neither_code_nor_endless_work(gated_server: tuple[str, Path]) -> None:
    url, _ = gated_server
    async with GenericEnvClient(url) as env:
        for policy in ("own_policies:corner", "os:abort", "mcts:1000000"):
            with pytest.raises(ConfigurationError, match="opponent_policy"):
                await env.reset(opponent_policy=policy)
        assert (await env.reset(seed=1)).observation["legal_actions"] == list(range(9))
