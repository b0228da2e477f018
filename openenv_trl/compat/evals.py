"""The place of ``openenv.core.evals``, which is not offered: importing it says what to use."""

raise ImportError(
    "openenv.core.evals has no counterpart in openenv_trl: evaluate with openenv_trl.evaluation or openenv-trl eval."
)
