"""What the tests of the package and of its environments share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine and its other work, and nothing about a promise. Examples
# are the same in each run, so that a change is what makes a test fail; `--hypothesis-profile explore` looks for new
# ones.
ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", ANY_MACHINE)
settings.register_profile("repeatable", ANY_MACHINE, derandomize=True)
settings.load_profile("repeatable")

# A run in the background of a script ignores interrupts, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests are shared out by their names, which so must be the same in each process."""
    if addressed := [item.nodeid for item in items if " object at 0x" in item.nodeid]:
        raise pytest.UsageError(f"Give these tests ids of their own; an address is another each time: {addressed}")


@pytest.fixture(autouse=True)
def written_modules_go_with_their_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget modules that a test wrote and imported: the next test's may have the same name."""
    before, path = set(sys.modules), list(sys.path)
    yield
    written = tmp_path_factory.getbasetemp()
    for name in set(sys.modules) - before:
        found = getattr(sys.modules[name], "__spec__", None)
        places = [found.origin, *(found.submodule_search_locations or ())] if isinstance(found, ModuleSpec) else []
        if any(place and Path(place).is_relative_to(written) for place in places):
            del sys.modules[name]
    sys.path[:] = [entry for entry in sys.path if entry in path or not Path(entry).is_relative_to(written)]
