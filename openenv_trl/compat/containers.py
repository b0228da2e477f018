"""The place of ``openenv.core.containers``, which is not offered: importing it says what to use."""

raise ImportError(
    "openenv.core.containers has no counterpart in openenv_trl: "
    "servers are started by openenv_trl.providers, such as ProcessProvider."
)
