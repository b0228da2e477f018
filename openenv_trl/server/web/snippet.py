"""The Python program that plays a visitor's episode again, with this package's client."""

from __future__ import annotations

import ast
import json
import keyword
from typing import Any

from openenv_trl.server.web.episode_record import MOST_STEPS, EpisodeRecord


def snippet_of(record: EpisodeRecord, address: str, *, needs_token: bool, state: dict[str, Any] | None = None) -> str:
    """Return the program.

    Args:
        record: The episode.
        address: Where its server is reached.
        needs_token: Whether the server asks for a token, which the program takes from the environment variable.
        state: The environment's state. Where the episode was begun without a seed, the program takes the one that the
            state tells, and says so where it tells none.
    """
    arguments = dict(record.reset_arguments or {})
    about_seed = []
    if arguments.get("seed") is None:
        drawn = (state or {}).get("seed")
        if isinstance(drawn, int) and not isinstance(drawn, bool):
            arguments["seed"] = drawn
            about_seed = ["# No seed was given: this is the one that the environment drew, as its state tells."]
        else:
            about_seed = ["# No seed was given, and the state tells none: what is drawn by chance may be another."]
    calls = [*about_seed, f"result = env.reset({_keywords(arguments)})"]
    calls += [f"result = env.step({_literal(action)})" for action in record.actions]
    calls += ["print(result.observation, result.reward, result.done)"]
    lines = ["from openenv_trl import GenericEnvClient", ""]
    if any("json.loads(" in call for call in calls):
        lines.insert(0, "import json\n")
    if needs_token:
        lines += ["# The server needs a token: set OPENENV_TRL_TOKEN before you run this."]
    if not record.is_whole:
        lines += [f"# The first {MOST_STEPS} of {record.step_count} steps: later ones are not kept."]
    lines += [f"with GenericEnvClient({_literal(address)}).sync() as env:", *(f"    {call}" for call in calls)]
    return "\n".join(lines) + "\n"


def _keywords(arguments: dict[str, Any]) -> str:
    if all(name.isidentifier() and not keyword.iskeyword(name) for name in arguments):
        return ", ".join(f"{name}={_literal(value)}" for name, value in arguments.items())
    return f"**{_literal(arguments)}"


def _literal(value: Any) -> str:
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # NaN and the infinities have no literal
        return f"json.loads({json.dumps(value)!r})"
    return text
