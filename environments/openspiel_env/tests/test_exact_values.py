"""The exact values are those of the game: by hand where that is easy, and as the mean over played matches."""

from __future__ import annotations

import random
import statistics

import pytest
from openspiel_env.exact import exact_returns
from openspiel_env.models import OpenSpielAction
from openspiel_env.server.openspiel_environment import environment_class

from openenv_trl.errors import ConfigurationError


def test_catch_is_worth_what_symmetry_says() -> None:
    # The ball falls in each column equally often, whatever the paddle does: a paddle that does not look at it meets it
    # in one of so many columns.
    for columns in (3, 5, 7):
        values = exact_returns("catch", {"columns": columns})
        assert values.random == pytest.approx(2 / columns - 1)
        assert (values.best, values.worst) == (pytest.approx(1.0), pytest.approx(-1.0))
    # Two columns to the side cannot be reached in one move.
    assert exact_returns("catch", {"rows": 2}).best == pytest.approx(3 / 5 - 2 / 5)


def test_cliff_walking_and_tic_tac_toe_have_their_known_values() -> None:
    walk = exact_returns("cliff_walking")
    assert (walk.best, walk.worst) == (-9.0, -199.0)  # up, seven to the right, down; or to the horizon and then off it
    assert exact_returns("tic_tac_toe").best == pytest.approx(191 / 192)
    first, second = exact_returns("tic_tac_toe"), exact_returns("tic_tac_toe", agent_player=1)
    assert first.random == pytest.approx(-second.random)


@pytest.mark.parametrize(
    ("name", "agent", "opponent"),
    [("catch", 0, "random"), ("cliff_walking", 0, "random"), ("tic_tac_toe", 0, "random"), ("tic_tac_toe", 1, "first")],
)
def test_random_play_earns_its_exact_value(name: str, agent: int, opponent: str) -> None:
    environment = environment_class(name)()
    choices = random.Random(11)
    returns: list[float] = []
    for seed in range(1500):
        seen = environment.reset(seed=seed, agent_player=agent, opponent_policy=opponent)
        total = 0.0
        while not seen.done:
            seen = environment.step(OpenSpielAction(action_id=choices.choice(seen.legal_actions)))
            total += seen.reward or 0.0
        returns.append(total)
    exact = exact_returns(name, agent_player=agent, opponent_policy=opponent)  # pyright: ignore[reportArgumentType]
    error = statistics.stdev(returns) / len(returns) ** 0.5
    assert abs(statistics.fmean(returns) - exact.random) < 4.5 * error


def test_a_game_that_hides_something_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="hides something"):
        exact_returns("kuhn_poker")
