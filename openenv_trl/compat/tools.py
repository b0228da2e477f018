"""The place of ``openenv.core.tools``, which is not offered: importing it says what to use."""

raise ImportError(
    "openenv.core.tools has no counterpart in openenv_trl: "
    "bring your own executor; code mode of MCPEnvironment runs code in a process."
)
