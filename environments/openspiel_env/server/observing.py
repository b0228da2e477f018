"""What a player is shown of a match."""

from __future__ import annotations

from typing import Any

from openspiel_env.models import OpenSpielObservation
from openspiel_env.server.match import Match
from openspiel_env.server.wording import message_of

_OVER = -4  # OpenSpiel's current_player() at the end


def observation_of(
    match: Match, player: int, most_moves: int, *, initial: bool, others_wait: bool = False
) -> OpenSpielObservation:
    """The observation of a player who is to move, or whose match is over.

    Args:
        match: The match. What its player has won and what the others did count as told.
        player: Who is shown it.
        most_moves: Legal moves that the message names at most.
        initial: Whether this begins the episode: there is no reward then, unless the match is over at once.
        others_wait: Whether other sessions play in the match.
    """
    over = match.over
    moves = match.take_moves(player)
    metadata: dict[str, Any] = {}
    if moves:
        metadata["moves"] = [{"player": move.player, "action": move.action, "move": move.text} for move in moves]
    if initial and others_wait and not over:
        metadata["others_wait"] = True
    if match.early_end is not None:
        metadata |= {"match_end": match.early_end.kind, "match_end_player": match.early_end.player}
    if match.truncated or (initial and match.early_end is not None):  # in which this player never was to move
        metadata["truncated"] = True
    return OpenSpielObservation(
        info_state=match.view(player),
        legal_actions=match.legal_actions(player),
        game_phase="terminal" if over else "initial" if initial else "playing",
        current_player_id=_OVER if over else player,
        opponent_last_action=match.last_move_of_others(player),
        message=message_of(match, player, moves, most_moves),
        reward=match.take_reward(player) if over or not initial else None,
        done=over,
        metadata=metadata,
    )
