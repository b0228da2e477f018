"""Watching a batch of episodes while it is played: what each does, in the terminal or as lines of a log."""

from openenv_trl.rollout.watch.progress import BatchProgress, BatchView, SlowEpisode
from openenv_trl.rollout.watch.screen import progress_line, progress_panel
from openenv_trl.rollout.watch.terminal import RolloutWatch

__all__ = ["BatchProgress", "BatchView", "RolloutWatch", "SlowEpisode", "progress_line", "progress_panel"]
