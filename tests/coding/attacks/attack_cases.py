"""The attacks as data, one file a case in ``cases``, and the one judgement of what came of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
_DESCRIPTORS = 3  # a listener's or a log's, which come and go

Case = dict[str, Any]
"""A case:

- ``name``; ``gains``: what it would have gained; ``expected``: what stops it.
- ``kind``: ``run``, its code is run in a session; ``solution``, its code is handed in and hidden tests judge it;
  ``episode``, its code is run, and the workspace's solution is judged.
- ``code``, with words for its targets (see `traps`). It prints PWNED where it gets what it wants.
- ``needs``: layers of which one must be there, or the sandbox does not claim to stop it.
- ``passes``: hidden tests that pass, or a list of how many may; 0 if not given. ``tests``: its own, for the usual ones;
  ``seconds``: how long they may take together.
- ``failure``: the run must be killed. ``timed_out``: its time must be up. ``max_stdout``: characters it may return.
- ``own_session_spoilt``: it may break its own session, and no other.
- ``tools``: uses of the file tools after its code, while what it left behind goes on.
- ``after``: code for the same session when all else is done; ``next``: code for a fresh one. Both print PWNED too.
- ``bare``: why it need not gain anything where nothing confines it (see `bare`); not given where it must.
"""
FIELDS = (
    *("name", "kind", "gains", "expected", "code", "needs", "passes", "tests", "seconds", "failure", "timed_out"),
    *("max_stdout", "own_session_spoilt", "tools", "after", "next", "bare"),
)
"""All that a case may have."""


def load_cases(folder: Path = HERE / "cases") -> dict[str, Case]:
    """Return the cases by their names."""
    return {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in sorted(folder.glob("*.yaml"))}


def breaches(case: Case, result: dict[str, Any]) -> list[str]:
    """Return what an attack got, in words; nothing where it was contained.

    Args:
        case: The case.
        result: What the arena tells of it; ``{}`` where the arena itself did not outlive it.
    """
    if not result:
        return ["the server ended, or answers no more"]
    found: list[str] = []
    if "PWNED" in result["stdout"]:
        found.append("it got what it wanted")
    if "passed" in result:
        allowed = case.get("passes", 0)
        allowed = allowed if isinstance(allowed, list) else [allowed]
        if result["passed"] not in allowed:
            found.append(f"{result['passed']} tests passed")
    if "afterwards" in result:
        if case.get("timed_out") and not result["timed_out"]:
            found.append("its time was not up")
        if case.get("failure") and not result["failure"]:
            found.append("it was not killed")
        if not case.get("own_session_spoilt") and result["usable"] and result["afterwards"] != "42":
            found.append("its session is spoilt")
    if len(result["stdout"]) + len(result["stderr"]) > case.get("max_stdout", 1 << 15):
        found.append("its output was not cut")
    if result["connections"]:
        found.append("it connected to a listener")
    if not result["secret_kept"]:
        found.append("it changed a file of the server's")
    if result["neighbour"] != '"mine"':
        found.append("another session was spoilt")
    if result["fresh"] != "[] 2.0":
        found.append("the next session was spoilt")
    if result["left"]:
        found.append(f"it left something behind: {result['left']}")
    if result["descriptors_left"] > _DESCRIPTORS:
        found.append(f"the server has {result['descriptors_left']} more descriptors open")
    return found


def was_made(result: dict[str, Any]) -> bool:
    """Whether the attack itself took place, and did not only fail at a line that cannot work."""
    errors = ("ImportError", "ModuleNotFound", "NameError")
    # A test that finds no solution is what some attacks on the grader come to.
    in_tests = " ".join(result.get("outcomes", ()))
    return not any(error in result["stderr"] for error in errors) and "ModuleNotFound" not in in_tests
