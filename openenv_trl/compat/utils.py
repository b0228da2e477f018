"""The place of ``openenv.core.utils``, which is not offered: importing it says what to use."""

raise ImportError(
    "openenv.core.utils has no counterpart in openenv_trl: "
    "it is the public package's own; write the lines that you use into your package."
)
