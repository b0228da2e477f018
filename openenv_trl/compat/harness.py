"""The place of ``openenv.core.harness``, which is not offered: importing it says what to use."""

raise ImportError(
    "openenv.core.harness has no counterpart in openenv_trl: episodes are played by openenv_trl.rollout.RolloutEngine."
)
