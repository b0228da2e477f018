"""What became of every attack on every kind of sandbox, and which layer stops it: found by leaving layers out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ATTACKS = Path(__file__).parent.parent / "tests" / "coding" / "attacks"
sys.path.insert(0, str(ATTACKS))

from attack_cases import Case, breaches, load_cases
from attack_places import ANSWER_S, PLACES, Arena, LostError, NotHereError, Place, attack_bare, built_image

ALWAYS = "always"
"""What no switch turns off: limits, rights given up, the deadline, the checks of frames, the judge's own process."""
TOGETHER = "together"
"""No layer alone stops it, and all of them do."""
_ALL = ("user", "files", "landlock", "seccomp", "cgroup")
ALONE: dict[str, tuple[str, ...]] = {
    # Each with what is left out, so that the one is alone with what is always there.
    "user": ("files", "landlock", "seccomp", "cgroup"),
    "files": ("user", "processes", "network", "landlock", "seccomp", "cgroup"),
    "processes": ("user", "network", "landlock", "seccomp", "cgroup"),
    "network": ("user", "processes", "landlock", "seccomp", "cgroup"),
    "landlock": ("user", "files", "seccomp", "cgroup"),
    "seccomp": ("user", "files", "landlock", "cgroup"),
}
_AT_ONCE = 2
_ANSWER_S = 30.0  # where layers are left out, and many an attack ends or stops the arena


def attack_table(names: Iterable[str] | None = None) -> dict[str, Any]:
    """Make every attack everywhere, and return what came of each.

    Args:
        names: The cases; None for all.

    Returns:
        ``places``: layers and level of each that this machine has. ``cases``: for each, ``gains``, ``bare`` (what it
        got from a server that confines nothing), ``alone`` (the layers each of which stops it alone), and ``places``
        (``contained`` or ``open`` there, ``breached`` with what it got, and ``by``, the layers that stop it).
    """
    cases = load_cases()
    chosen = {name: cases[name] for name in (names or cases)}
    with ExitStack() as stack, ThreadPoolExecutor(_AT_ONCE) as pool:
        image = ""
        try:
            image = stack.enter_context(built_image())
        except NotHereError as error:
            print(error, file=sys.stderr)
        here = {name: place for name, place in PLACES.items() if image or place.who != "container"}
        runs = {name: pool.submit(_made_at, place, image, chosen) for name, place in here.items()}
        bare = {name: pool.submit(attack_bare, case) for name, case in chosen.items()}
        none = pool.submit(_made_at, Place("nobody", _ALL), "", chosen, _ANSWER_S)
        not_always = {name: case for name, case in chosen.items() if none.result()[0][name]}
        alone = {
            # Users of their own are for root to give.
            name: pool.submit(_made_at, Place("mapped" if name == "user" else "nobody", off), "", not_always, _ANSWER_S)
            for name, off in ALONE.items()
        }
        stops = {name: [ALWAYS] for name in chosen}
        for name in not_always:
            stops[name] = [layer for layer, run in alone.items() if not run.result()[0][name]] or [TOGETHER]
        rows = {
            name: {
                "gains": " ".join(case["gains"].split()),
                "bare": breaches(case, bare[name].result()),
                "alone": stops[name],
                "places": dict(
                    _in_places(name, case, {place: run.result() for place, run in runs.items()}, stops[name])
                ),
            }
            for name, case in chosen.items()
        }
        return {"places": {place: run.result()[1] for place, run in runs.items()}, "cases": rows}


def _made_at(
    place: Place, image: str, cases: dict[str, Case], answer_s: float = ANSWER_S
) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """What each attack got at one place, and the place's layers and level."""
    got: dict[str, list[str]] = {}
    arena: Arena | None = None
    about: dict[str, Any] = {}
    for name, case in cases.items():
        try:
            arena = arena or Arena(place, image, answer_s)
            about = {"layers": arena.layers, "level": arena.level}
            got[name] = breaches(case, arena.attack(case))
        except LostError as error:
            got[name] = [f"the server is lost: {error}"]
            if arena is not None:
                arena.close()
            arena = None
    if arena is not None:
        arena.close()
    return got, about


def _in_places(name: str, case: Case, runs: dict[str, Any], stops: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for place, (got, about) in runs.items():
        layers = about["layers"]
        needs = case.get("needs")
        if needs and not set(needs) & set(layers):
            yield place, {"result": "open", "got": got[name]}
        elif got[name]:
            yield place, {"result": "breached", "got": got[name]}
        else:
            by = [each for each in stops if each in layers or each in (ALWAYS, TOGETHER)] or [TOGETHER]
            yield place, {"result": "contained", "by": by}


def markdown(results: dict[str, Any]) -> str:
    """The table as a page.

    Args:
        results: As `attack_table` returns it.
    """
    places = results["places"]
    lines = [
        "# Attacks on the coding environment's sandbox",
        "",
        "Made by `python benchmarks/sandbox.py` from `benchmarks/results/sandbox.json`; the cases are files of",
        "`tests/coding/attacks/cases`, where each says what it does. In each column: the layers of that sandbox",
        "that stop the attack, each of them alone, found by runs with that layer only. `always` is what no switch",
        "turns off: limits, rights given up, the deadline, the checks of frames, the judge's own process. `together`:",
        "no layer alone stops it, all of them do. **open**: that kind of sandbox does not claim to stop it.",
        "The column *bare* tells whether the attack gets what it wants from a server that confines nothing, inside of",
        "the suite's outer limits.",
        "",
        "| place | level | layers |",
        "|---|---|---|",
        *(f"| {place} | {about['level']} | {', '.join(about['layers'])} |" for place, about in places.items()),
        "",
        f"| case | would have gained | bare | {' | '.join(places)} |",
        f"|---|---|---|{'---|' * len(places)}",
    ]
    for name, row in sorted(results["cases"].items()):
        cells = [_cell(row["places"].get(place, {"result": "-"})) for place in places]
        lines.append(f"| {name} | {row['gains']} | {'succeeds' if row['bare'] else 'nothing'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(told: dict[str, Any]) -> str:
    if told["result"] == "contained":
        return ", ".join(told["by"])
    return f"**{told['result']}**"
