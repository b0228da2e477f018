"""What the agent does, what it sees, and what the trainer sees of a game.

The fields' names and wire shapes are those of the public OpenEnv package's OpenSpiel environment, so that its clients
talk to this server and this client to its servers. Ours is ``message``: the same in words, for language models.

Source: ``openspiel_env`` of the OpenEnv package, version 0.10.0, for the names.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from openenv_trl.types import Action, Observation, State


class OpenSpielAction(Action):
    """One move, by its number."""

    action_id: int
    """The move's number in OpenSpiel: one of the observation's ``legal_actions``."""
    game_name: str = "catch"
    """Taken for the public package's clients, and without effect: the server decides the game."""
    game_params: dict[str, Any] = Field(default_factory=dict)
    """Taken for the public package's clients, and without effect: ``reset`` decides the game's parameters."""


class OpenSpielObservation(Observation):
    """The game as the agent's player sees it when it is to move, or when the game is over."""

    info_state: list[float]
    """OpenSpiel's information state tensor of the agent's player, its observation tensor where the game has no other,
    or nothing where it has neither."""
    legal_actions: list[int]
    """Numbers of the moves that are legal now; none once the game is over."""
    game_phase: Literal["initial", "playing", "terminal"] = "playing"
    """"initial" after a reset, "terminal" once the game is over, else "playing"."""
    current_player_id: int = 0
    """Whose turn it is: the agent's player, or OpenSpiel's -4 once the game is over."""
    opponent_last_action: int | None = None
    """Number of the last move that another player made; None where there was none, and in games that hide moves."""
    message: str = ""
    """The situation in words, and the legal moves where they vary: what a language model reads."""


class OpenSpielState(State):
    """Which game is played, against whom, and what it takes to play it again."""

    game_name: str = "catch"
    """OpenSpiel's name of the game."""
    agent_player: int = 0
    """Which player the agent is, from 0."""
    opponent_policy: str = "random"
    """How the other players move: a policy's name, or one for each player."""
    game_params: dict[str, Any] = Field(default_factory=dict)
    """The game's parameters, as far as they were given."""
    num_players: int = 1
    """Players of the game, the agent's included."""
    illegal_moves: str = "error"
    """What an illegal move does: "error" or "loss"."""
    seed: int | None = None
    """The seed of the game: as given to ``reset``, or drawn from the operating system's entropy."""
    task_seed: int | None = None
    """The seed of all that is random before the agent's first move, where one was given."""
    match: str | None = None
    """The name under which the match's sessions met, where others than this one play in it."""
