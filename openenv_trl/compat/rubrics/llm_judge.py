"""The place of ``openenv.core.rubrics.llm_judge``, which is not offered: importing it says what to use."""

raise ImportError(
    "openenv.core.rubrics.llm_judge has no counterpart in openenv_trl: write a Rubric whose forward asks your model."
)
