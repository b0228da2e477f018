"""Every attack is contained, the server lives, and the next session is clean: on each kind of sandbox that is here.

One file a case in ``cases``: what it does, what it would have gained, and what stops it. All of it runs in programs
with limits of their own (see `outer_limits`), so that a hole harms that alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from attack_cases import FIELDS, breaches, load_cases, was_made
from attack_places import PLACES, Arena, LostError, NotHereError, Place, built_image

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox's layers are Linux's")
CASES = load_cases()
LIKE_ANOTHER = ("without root", "root without namespaces", "container with the profile")
"""These have layers that others have already: one case of four, or all with OPENENV_TRL_ALL_ATTACKS=1."""
AT_ONCE = 2
"""Places that attacks are made in at the same time: many of them are waiting for their time to be up."""


def _all_attacks() -> Iterator[Any]:
    for name, place in PLACES.items():
        marks = [pytest.mark.docker] if place.who == "container" else []
        some = name in LIKE_ANOTHER and os.environ.get("OPENENV_TRL_ALL_ATTACKS") != "1"
        for case in list(CASES)[:: 4 if some else 1]:
            yield pytest.param(name, case, marks=marks, id=f"{name}-{case}")


class _Attacker:
    """Makes the attacks of one place, one after another, while those of another place are made too."""

    def __init__(self, place: Place, names: list[str], image: Future[str]) -> None:
        self.results: dict[str, Future[Any]] = {name: Future() for name in names}
        self._place = place
        self._image = image

    def run(self) -> None:
        arena: Arena | None = None
        for name, result in self.results.items():
            try:
                if arena is None:
                    image = self._image.result() if self._place.who == "container" else ""
                    arena = Arena(self._place, image)
                needs = CASES[name].get("needs")
                if needs and not set(needs) & set(arena.layers):
                    result.set_result(f"needs one of the layers {', '.join(needs)}; here are {', '.join(arena.layers)}")
                    continue
                result.set_result(arena.attack(CASES[name]))
            except LostError as error:
                if arena is not None:
                    arena.close()
                arena = None  # the next attack has a new one
                result.set_result({"lost": str(error)})
            except BaseException as error:
                result.set_exception(error)
        if arena is not None:
            arena.close()


@pytest.fixture(scope="module")
def attackers(request: pytest.FixtureRequest) -> Iterator[dict[str, _Attacker]]:
    """Those of all places that tests were collected for; they are at work already."""
    wanted: dict[str, list[str]] = {}
    for item in request.session.items:
        if item.path == Path(__file__) and getattr(item, "originalname", "") == test_an_attack_is_contained.__name__:
            parameters = item.callspec.params  # pyright: ignore[reportAttributeAccessIssue]
            wanted.setdefault(parameters["place"], []).append(parameters["name"])
    image: Future[str] = Future()
    started = {place: _Attacker(PLACES[place], names, image) for place, names in wanted.items()}
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(AT_ONCE + 1) as pool:
        if any(PLACES[place].who == "container" for place in wanted):
            pool.submit(_build, stack, image)
        for attacker in started.values():
            pool.submit(attacker.run)
        yield started


def _build(stack: contextlib.ExitStack, image: Future[str]) -> None:
    try:
        image.set_result(stack.enter_context(built_image()))
    except BaseException as error:
        image.set_exception(error)


@pytest.mark.parametrize(("place", "name"), list(_all_attacks()))
@pytest.mark.timeout(900)
def test_an_attack_is_contained(place: str, name: str, attackers: dict[str, _Attacker]) -> None:
    try:
        result: dict[str, Any] | str = attackers[place].results[name].result()
    except NotHereError as error:
        if "Docker" in str(error) and os.environ.get("OPENENV_TRL_REQUIRE_DOCKER") == "1":
            raise
        pytest.skip(str(error))
    if isinstance(result, str):
        pytest.skip(result)
    assert "lost" not in result, result["lost"]
    found = breaches(CASES[name], result)
    assert not found, f"{'; '.join(found)}\n{json.dumps(result, indent=1)}"
    assert was_made(result), json.dumps(result, indent=1)


def test_every_case_says_what_it_would_have_gained() -> None:
    assert len(CASES) >= 130
    known = set(FIELDS)
    for name, case in CASES.items():
        assert case["name"] == name
        assert case["kind"] in ("run", "solution", "episode")
        assert all(case[key] for key in ("gains", "expected", "code")), name
        assert not case.keys() - known, name
