"""What simple players score: ``python -m atari_env.scores``.

Each plays the same seeded episodes, with sticky actions, no-ops at the start and a limit of frames, so that a figure
can be made again.
"""

from __future__ import annotations

import argparse
import statistics

from atari_env.players import SCRIPTED, Player, no_op, random_player
from atari_env.server.atari_environment import environment_class
from atari_env.server.settings import AtariSettings


def play(game: str, player: Player | None, seed: int, max_frames: int = 12000, frameskip: int = 4) -> float:
    """The score of one episode.

    Args:
        game: The game.
        player: Who plays; the random player, seeded alike, if None.
        seed: The episode's seed.
        max_frames: Frames after which it is cut off.
        frameskip: Frames that an action is held for.
    """
    settings = AtariSettings(
        obs_type="text",
        text_grid="never",
        noop_max=30,
        repeat_action_probability=0.25,
        max_num_frames_per_episode=max_frames,
        frameskip=frameskip,
    )
    environment = environment_class(game)(settings)
    try:
        seen = environment.reset(seed=seed)
        chosen = player or random_player(seen.metadata["action_meanings"], seed)
        total = 0.0
        while not seen.done:
            seen = environment.hold(chosen(seen.message))
            total += seen.reward or 0.0
        return total
    finally:
        environment.close()


def table(games: list[str], episodes: int, max_frames: int) -> str:
    """The players' mean scores as a table in Markdown, with the standard deviation of an episode's."""
    lines = ["| game | random | no-op | scripted |", "|---|---|---|---|"]
    for game in games:
        cells: list[str] = []
        for player in (None, no_op, SCRIPTED.get(game)):
            if player is None and cells:
                cells.append("")
                continue
            scores = [play(game, player, seed, max_frames) for seed in range(episodes)]
            cells.append(f"{statistics.fmean(scores):.1f} ± {statistics.pstdev(scores):.1f}")
        lines.append(f"| `{game}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("games", nargs="*", default=list(SCRIPTED), help="which games; all with a scripted player")
    parser.add_argument("--episodes", type=int, default=10, help="seeds 0, 1, ... (default: 10)")
    parser.add_argument("--frames", type=int, default=12000, help="limit of frames an episode (default: 12000)")
    chosen = parser.parse_args()
    print(table(chosen.games, chosen.episodes, chosen.frames))


if __name__ == "__main__":
    main()
