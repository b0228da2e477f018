"""A match is OpenSpiel's game, move for move: its positions, its legal moves, its rewards and its end."""

from __future__ import annotations

from typing import Any

import pyspiel
import pytest
from openspiel_env.models import OpenSpielAction
from openspiel_env.server import games
from openspiel_env.server.match import Match, play_policies
from openspiel_env.server.openspiel_environment import OpenSpielEnvironment, environment_class
from openspiel_env.server.opponents import SIMPLE
from openspiel_env.server.settings import MatchSettings

from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError

GAMES: list[tuple[str, dict[str, Any], int]] = [
    ("2048", {}, 0),
    ("blackjack", {}, 0),
    ("catch", {"rows": 6, "columns": 7}, 0),
    ("cliff_walking", {"horizon": 30}, 0),
    ("connect_four", {}, 1),
    ("hearts", {}, 2),
    ("kuhn_poker", {"players": 3}, 1),
    ("leduc_poker", {}, 0),
    ("pig", {}, 1),
    ("tic_tac_toe", {}, 1),
]
# Their own search takes seconds a move or a load.
SLOW = {"bridge", "bridge_uncontested_bidding", "colored_trails", "tiny_bridge_2p"}


@pytest.mark.parametrize(("name", "parameters", "agent"), GAMES, ids=lambda value: str(value))
def test_every_observation_is_what_openspiel_says_of_the_same_history(
    name: str, parameters: dict[str, Any], agent: int
) -> None:
    rules = pyspiel.load_game(name, parameters)
    kind = rules.get_type()
    for seed in range(3):
        game = games.load(name, parameters)
        others = {player: SIMPLE["random"] for player in range(game.players) if player != agent}
        match = Match(game, [agent], others, seed)
        rewards = 0.0
        while True:
            play_policies(match)
            rewards += match.take_reward(agent)
            replayed = rules.new_initial_state()
            for action in match.state.history():
                replayed.apply_action(action)
            assert match.over == replayed.is_terminal()
            assert match.legal_actions(agent) == ([] if match.over else replayed.legal_actions())
            tensor = (
                replayed.information_state_tensor
                if kind.provides_information_state_tensor
                else replayed.observation_tensor
            )
            assert match.view(agent) == tensor(agent)
            assert rewards == pytest.approx(replayed.returns()[agent])
            if match.over:
                break
            assert replayed.current_player() == agent
            legal = match.legal_actions(agent)
            match.choose(agent, legal[len(match.state.history()) % len(legal)])


def test_every_registered_game_is_played_or_refused_with_what_to_change() -> None:
    played: set[str] = set()
    refused: dict[str, str] = {}
    for name in sorted(set(pyspiel.registered_names()) - SLOW):
        try:
            environment = environment_class(name)()
        except ConfigurationError as error:
            refused[name] = str(error)
            continue
        seen = environment.reset(seed=3)
        for turn in range(3):
            if seen.done:
                break
            assert seen.message
            seen = environment.step(OpenSpielAction(action_id=seen.legal_actions[turn % len(seen.legal_actions)]))
        played.add(name)
    assert all(f"'{name}'" in text for name, text in refused.items())
    assert len(played) > 95
    assert played >= {"catch", "chess", "go", "hanabi", "goofspiel", "matrix_rps", "universal_poker"}


@pytest.mark.parametrize(
    ("name", "parameters", "text"),
    [
        ("catsh", {}, "catch"),
        ("catch", {"rowz": 3}, "rows"),
        ("catch", {"rows": "many"}, "kInt"),
        ("misere", {}, "game"),
        ("nfg_game", {}, "filename"),
        ("mfg_garnet", {}, "mean field"),
        ("crossword", {}, "no numbers"),
        ("misere(game=negotiation())", {}, "rng_seed"),
    ],
)
def test_a_game_that_cannot_be_played_says_why(name: str, parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        games.load(name, parameters)


def test_a_player_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"agent_player=2.*2 player"):
        environment_class("tic_tac_toe")(MatchSettings(agent_player=2))
    environment = environment_class("kuhn_poker")()
    with pytest.raises(ConfigurationError, match=r"agent_player=2"):
        environment.reset(agent_player=2)
    assert environment.reset(seed=1, agent_player=2, game_params={"players": 3}).current_player_id == 2


def test_games_that_take_other_games_are_named_in_openspiels_own_form() -> None:
    seen = environment_class("misere(game=tic_tac_toe())")().reset(seed=0)
    assert len(seen.legal_actions) == 9
    assert "x(0,0)" in seen.message


@pytest.mark.parametrize(("policy", "reply"), [("first", 1), ("last", 8), ("middle", 5)])
def test_an_opponent_makes_the_move_that_its_name_says(policy: str, reply: int) -> None:
    environment = environment_class("tic_tac_toe")()
    assert environment.reset(seed=0, opponent_policy=policy).opponent_last_action is None
    assert environment.step(OpenSpielAction(action_id=0)).opponent_last_action == reply


def test_the_agent_can_be_any_player_and_the_others_move_first() -> None:
    environment = environment_class("tic_tac_toe")()
    seen = environment.reset(seed=0, agent_player=1, opponent_policy="last")
    assert (seen.opponent_last_action, seen.current_player_id, seen.legal_actions) == (8, 1, list(range(8)))
    assert (seen.game_phase, seen.reward) == ("initial", None)


def test_what_players_choose_at_the_same_time_is_not_seen_before() -> None:
    environment = environment_class("repeated_game(stage_game=matrix_pd(),num_repetitions=3)")()
    seen = environment.reset(seed=0, agent_player=1, opponent_policy="last")
    assert seen.opponent_last_action is None
    for _ in range(2):
        seen = environment.step(OpenSpielAction(action_id=0))
        assert seen.opponent_last_action == 1
    first_views = {
        tuple(environment.reset(seed=0, agent_player=1, opponent_policy=policy).info_state)
        for policy in ("first", "last")
    }
    assert len(first_views) == 1


def test_hidden_moves_stay_hidden() -> None:
    environment = environment_class("phantom_ttt")()
    environment.reset(seed=0)
    assert environment.step(OpenSpielAction(action_id=4)).opponent_last_action is None
    messages = {environment.reset(seed=seed, agent_player=1).message for seed in range(20)}
    assert len(messages) == 1


def test_a_match_that_ends_before_the_agents_first_move_is_dealt_again() -> None:
    # In euchre a player may go alone; the partner then never moves, in one of some fourteen random matches.
    environment = environment_class("euchre")()
    assert not any(environment.reset(seed=seed).done for seed in range(80))


def test_a_player_that_is_never_to_move_is_refused() -> None:
    environment = environment_class("nim")(MatchSettings(game_params={"pile_sizes": "1"}))
    assert environment.reset(seed=0).legal_actions
    with pytest.raises(ConfigurationError, match="Player 1 was not once to move"):
        environment.reset(seed=0, agent_player=1)


def test_parameters_that_are_none_are_as_if_not_given() -> None:
    # A data set's column of dicts has all keys in every row.
    environment = environment_class("catch")()
    assert len(environment.reset(seed=0, game_params={"rows": 4, "columns": None}).info_state) == 20


@pytest.mark.parametrize("name", ["tic_tac_toe", "2048", "catch"])
def test_an_illegal_move_is_refused_with_the_legal_ones_and_changes_nothing(name: str) -> None:
    environment = environment_class(name)()
    seen = environment.reset(seed=0)
    illegal = next(action for action in range(10) if action not in seen.legal_actions)
    before = environment.state
    with pytest.raises(ActionValidationError, match=r"not legal now\. Your moves: "):
        environment.step(OpenSpielAction(action_id=illegal))
    assert environment.state == before
    assert environment.step(OpenSpielAction(action_id=seen.legal_actions[0])).game_phase == "playing"


def test_an_illegal_move_loses_where_that_was_chosen() -> None:
    environment = environment_class("cliff_walking")(MatchSettings(illegal_moves="loss"))
    environment.reset(seed=0)
    earned = environment.step(OpenSpielAction(action_id=1)).reward
    seen = environment.step(OpenSpielAction(action_id=17))
    assert (seen.done, seen.game_phase, seen.legal_actions, seen.current_player_id) == (True, "terminal", [], -4)
    assert (earned or 0.0) + (seen.reward or 0.0) == pyspiel.load_game("cliff_walking").min_utility()
    assert seen.message == "That move is illegal. You lose."
    with pytest.raises(SessionStateError, match="over"):
        environment.step(OpenSpielAction(action_id=0))
    assert environment.reset(seed=0).game_phase == "initial"


def test_a_step_outside_a_match_names_reset() -> None:
    environment = environment_class("catch")()
    with pytest.raises(SessionStateError, match="reset"):
        environment.step(OpenSpielAction(action_id=0))
    environment.reset(seed=1, game_params={"rows": 2, "columns": 3})
    assert environment.step(OpenSpielAction(action_id=0)).done
    with pytest.raises(SessionStateError, match=r"over.*reset"):
        environment.step(OpenSpielAction(action_id=0))


def test_reset_changes_one_match_and_not_the_next() -> None:
    environment = environment_class("catch")(MatchSettings(game_params={"columns": 7}))
    assert len(environment.reset(seed=0).info_state) == 70
    assert len(environment.reset(seed=0, game_params={"rows": 4, "columns": 3}).info_state) == 12
    assert environment.state.game_params == {"rows": 4, "columns": 3}
    assert len(environment.reset(seed=0).info_state) == 70


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"sed": 1}, r"'sed'.*task_seed"),
        ({"seed": "1"}, "seed must be an integer"),
        ({"opponent_policy": "best"}, "opponent_policy"),
        ({"illegal_moves": "ignore"}, "illegal_moves"),
        ({"game_params": {"rows": 0.5}}, "rows"),
        ({"agent_player": -1}, "agent_player"),
    ],
)
def test_a_wrong_argument_of_reset_is_refused_and_the_match_goes_on(arguments: dict[str, Any], text: str) -> None:
    environment: OpenSpielEnvironment = environment_class("catch")()
    environment.reset(seed=4, episode_id="fourth")
    with pytest.raises(ConfigurationError, match=text):
        environment.reset(**arguments)
    assert environment.state.episode_id == "fourth"
    assert environment.step(OpenSpielAction(action_id=1)).game_phase == "playing"
