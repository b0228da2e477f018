"""What simple agents score, by playing: ``python -m openspiel_env.scores``.

For each of the games with words of their own: an agent that moves at random, one that makes the first legal move, and a
good one. The others move at random. Equal seeds give equal tables, on every machine.

Example:
    $ python -m openspiel_env.scores catch tic_tac_toe --matches 200
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from open_spiel.python.algorithms.best_response import BestResponsePolicy
from open_spiel.python.policy import UniformRandomPolicy

from openspiel_env.server import games
from openspiel_env.server.match import Match, play_policies
from openspiel_env.server.moves import FIXED_MOVES, read_move
from openspiel_env.server.observing import observation_of
from openspiel_env.server.opponents import SIMPLE, Policy, SeatPolicy, policy_for

Agent = Callable[[Match, int, random.Random], int]
"""Given a match, the player and a generator: the number of a legal move."""


@dataclass(frozen=True)
class Score:
    """The mean return of some matches, with the half of its 95% interval."""

    mean: float
    half_width: float

    def __str__(self) -> str:
        return f"{round(self.mean, 2) + 0.0:.2f} ± {self.half_width:.2f}"


def by_policy(policy: Policy) -> Agent:
    """An agent that plays by a policy, as an opponent may."""
    return lambda match, player, generator: policy.choose(match.state, player, generator)


def by_message(game_name: str, choose: Callable[[str], Sequence[str]]) -> Agent:
    """An agent that sees only the message, as a model does: it makes the first legal one of the moves it names."""

    def agent(match: Match, player: int, generator: random.Random) -> int:
        legal = {action: FIXED_MOVES[game_name][action] for action in match.legal_actions(player)}
        message = observation_of(match, player, 100, initial=False).message
        found = (read_move(word, legal) for word in choose(message))
        return next(action for action in found if action is not None)

    return agent


def _follow_the_ball(message: str) -> Sequence[str]:
    ball, paddle = (int(text) for text in re.findall(r"column (\d+)", message))
    return ["left" if ball < paddle else "right" if ball > paddle else "stay"]


def _round_the_cliff(message: str) -> Sequence[str]:
    row, column, last, goal = (int(text) for text in re.findall(r"(?:row|column) (\d+)", message)[:4])
    return ["down" if column == goal else "up" if row == last else "right"]


def _below_seventeen(message: str) -> Sequence[str]:
    cards = message.partition("Your hand: ")[2].partition(".")[0].split(", ")
    values = [1 if card == "ace" else int(card) if card.isdecimal() else 10 for card in cards]
    total = sum(values)
    soft = total + 10 if 1 in values and total <= 11 else total
    return ["hit" if soft < 17 else "stand"]


def best_response(game_name: str) -> Agent:
    """The agent that earns most against random players, by what the first player knows: OpenSpiel's best response."""
    rules = games.load(game_name, {}).rules
    response = BestResponsePolicy(rules, 0, UniformRandomPolicy(rules))
    return lambda match, player, generator: response.best_response_action(match.state.information_state_string(player))


def best_agent(game_name: str) -> tuple[str, Agent]:
    """A good agent of a game, and what it does.

    Raises:
        KeyError: There is none for this game.
    """
    scripted: dict[str, tuple[str, Callable[[str], Sequence[str]]]] = {
        "2048": ("down, else left, else right", lambda message: ("down", "left", "right", "up")),
        "blackjack": ("hits below 17", _below_seventeen),
        "catch": ("follows the ball", _follow_the_ball),
        "cliff_walking": ("round the cliff", _round_the_cliff),
    }
    if game_name in scripted:
        title, choose = scripted[game_name]
        return title, by_message(game_name, choose)
    if game_name in ("kuhn_poker", "leduc_poker"):
        return "best response", best_response(game_name)
    seat = {"connect_four": SeatPolicy("mcts", 200), "tic_tac_toe": SeatPolicy("minimax")}[game_name]
    return str(seat), by_policy(policy_for(seat, games.load(game_name, {}), {}))


GAMES = (
    "catch",
    "tic_tac_toe",
    "kuhn_poker",
    "cliff_walking",
    "2048",
    "blackjack",
    "leduc_poker",
    "connect_four",
)
"""The games of the table."""


def score(game_name: str, agent: Agent, matches: int, player: int = 0) -> Score:
    """What an agent earns against random players, in matches of the seeds 0, 1, 2, ..."""
    game = games.load(game_name, {})
    others = {each: SIMPLE["random"] for each in range(game.players) if each != player}
    returns: list[float] = []
    for seed in range(matches):
        match, generator = Match(game, [player], others, seed), random.Random(f"agent {seed}")
        play_policies(match)
        while not match.over:
            match.choose(player, agent(match, player, generator))
            play_policies(match)
        returns.append(match.returns()[player])
    spread = statistics.stdev(returns) if matches > 1 else 0.0
    return Score(statistics.fmean(returns), 1.96 * spread / matches**0.5)


def table(game_names: Sequence[str], matches: int) -> Iterator[str]:
    """The rows of a table in Markdown, each when it is known: random play, the first legal move, a good agent."""
    yield "| game | random | first legal move | good agent | which |"
    yield "|---|---|---|---|---|"
    for name in game_names:
        title, agent = best_agent(name)
        simple = [score(name, by_policy(SIMPLE[policy]), matches) for policy in ("random", "first")]
        yield f"| `{name}` | {simple[0]} | {simple[1]} | {score(name, agent, matches)} | {title} |"


def _game(text: str) -> str:
    if text not in GAMES:
        raise argparse.ArgumentTypeError(f"there are no agents for '{text}': choose of {', '.join(GAMES)}")
    return text


def _matches(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of matches: give 1 or more")
    return int(text)


def main() -> None:
    """Print the table, a row as soon as its game is played."""
    parser = argparse.ArgumentParser(
        prog="python -m openspiel_env.scores",
        description=(
            "What simple agents score against random players. A row is printed when its game is played; all games take "
            "half a minute of one processor."
        ),
    )
    parser.add_argument("games", nargs="*", type=_game, metavar="GAME", help=f"of: {', '.join(GAMES)} (all)")
    parser.add_argument("--matches", type=_matches, default=1000, help="of each agent in each game (1000)")
    arguments = parser.parse_args()
    for row in table(arguments.games or GAMES, arguments.matches):
        print(row, flush=True)


if __name__ == "__main__":
    main()
