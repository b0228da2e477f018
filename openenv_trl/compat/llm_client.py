"""The place of ``openenv.core.llm_client``, which is not offered: importing it says what to use."""

raise ImportError(
    "openenv.core.llm_client has no counterpart in openenv_trl: "
    "language models are the trainer's here; an environment that asks one brings its own client."
)
