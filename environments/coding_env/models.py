"""What the agent does, what it sees, and what the trainer sees of an episode of coding.

Names and shapes are those of the public package's ``coding_env``, so that either's clients can talk to either's server.
"""

from __future__ import annotations

from openenv_trl.types import Action, Observation, State


class CodeAction(Action):
    """Python code to run in the episode's interpreter."""

    code: str
    """The code: a whole cell, as in a notebook. The value of a last expression is shown."""


class CodeObservation(Observation):
    """What running code, or another tool, brought."""

    stdout: str = ""
    """What was written to standard output, then the value of the last expression; or what another tool has to say."""
    stderr: str = ""
    """What was written to standard error, a traceback too."""
    exit_code: int = 0
    """0, or 1 after an exception; 124 where the time was up; 137 where the interpreter was killed or ended itself."""


class CodeState(State):
    """Where the episode stands."""

    last_exit_code: int = 0
    """Exit code of the last run; 0 before the first."""
    seed: int | None = None
    """The episode's seed: as given to ``reset``, or drawn from the operating system's entropy."""
    task_id: str | None = None
    """The task, where one of those that come with the environment is worked on."""
    attempts: int = 0
    """How often the hidden tests were run."""
    tests_passed: int | None = None
    """Hidden tests that the last attempt passed; None before the first."""
    tests_total: int = 0
    """How many hidden tests the task has."""
    sandbox: str = ""
    """What the sandbox is worth on the server: "strong", "partial", "weak" or "none"."""
