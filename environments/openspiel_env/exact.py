"""What a game of perfect information is worth, exactly: by random play, at best and at worst, against fixed opponents.

The values are sums over all that can happen, and nothing is sampled, so that the mean over played matches can be held
against them. The server does not import this module.

With OpenSpiel's default parameters, catch is worth -0.6 by random play and 1 at best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from openenv_trl.errors import ConfigurationError
from openspiel_env.server import games
from openspiel_env.server.opponents import OpponentName

_SHARES: dict[str, Callable[[list[int]], dict[int, float]]] = {
    "random": lambda legal: {action: 1 / len(legal) for action in legal},
    "first": lambda legal: {legal[0]: 1.0},
    "last": lambda legal: {legal[-1]: 1.0},
    "middle": lambda legal: {legal[len(legal) // 2]: 1.0},
}


@dataclass(frozen=True)
class ExactReturns:
    """The mean returns of an agent.

    Attributes:
        random: By choosing each legal move equally often.
        best: By the best choice everywhere.
        worst: By the worst.
    """

    random: float
    best: float
    worst: float


def exact_returns(
    game_name: str,
    game_params: Mapping[str, Any] | None = None,
    *,
    agent_player: int = 0,
    opponent_policy: OpponentName = "random",
) -> ExactReturns:
    """The exact mean returns in a game of perfect information.

    Positions of the same picture at the same move number count as one. So games must have few of them: catch,
    cliff_walking and tic_tac_toe take seconds at most, chess and 2048 for ever.

    Args:
        game_name: OpenSpiel's name of the game.
        game_params: The game's parameters.
        agent_player: Which player the agent is.
        opponent_policy: How the others move.

    Raises:
        ConfigurationError: The game hides something, or cannot be loaded.

    Example:
        >>> exact_returns("tic_tac_toe", opponent_policy="first")
        ExactReturns(random=0.08148148148148146, best=1.0, worst=-1.0)
    """
    game = games.load(game_name, game_params or {})
    rules, kind = game.rules, game.rules.get_type()
    if game.simultaneous or kind.information != type(kind).Information.PERFECT_INFORMATION:
        raise ConfigurationError(f"'{game_name}' hides something from its players: these values would not be its own.")
    known: dict[tuple[int, str], tuple[float, float, float]] = {}

    def value(state: Any) -> tuple[float, float, float]:
        """The returns still to come: random, best, worst."""
        key = (state.move_number(), str(state))
        if key not in known:
            known[key] = fresh_value(state)
        return known[key]

    def fresh_value(state: Any) -> tuple[float, float, float]:
        if state.is_terminal():
            return 0.0, 0.0, 0.0
        own = not state.is_chance_node() and state.current_player() == agent_player
        if state.is_chance_node():
            shares = dict(state.chance_outcomes())
        else:
            shares = _SHARES["random" if own else opponent_policy](state.legal_actions())
        so_far = state.returns()[agent_player]
        after: list[tuple[float, float, float, float]] = []
        for action, share in shares.items():
            child = state.child(action)
            gain = child.returns()[agent_player] - so_far
            random, best, worst = value(child)
            after.append((share, gain + random, gain + best, gain + worst))
        random, best, worst = (sum(each[0] * each[which] for each in after) for which in (1, 2, 3))
        if own:
            best, worst = max(each[2] for each in after), min(each[3] for each in after)
        return random, best, worst

    return ExactReturns(*value(rules.new_initial_state()))
