"""How many tests of a task are kept: data sets come with hundreds, and with inputs of megabytes."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from coding_env.hub.shapes import UnusableRowError


class TestLimits(BaseModel):
    """Which tests of a task are kept."""

    __test__ = False  # pytest would take it for a class of tests

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_tests: int = Field(default=30, ge=1)
    """Tests of a task: of more, this many are taken at even distances, so that small and large ones are among them."""
    max_test_bytes: int = Field(default=200_000, ge=1)
    """Bytes of one test; larger ones are left out. They travel with each reset."""


def within(tests: Sequence[str], limits: TestLimits) -> list[str]:
    """Return the tests that are kept.

    Raises:
        UnusableRowError: None is.
    """
    small = [test for test in tests if len(test.encode("utf-8", "replace")) <= limits.max_test_bytes]
    if not small:
        raise UnusableRowError("all its tests are too large" if tests else "it has no tests")
    if len(small) <= limits.max_tests:
        return small
    step = len(small) / limits.max_tests
    return [small[int(place * step)] for place in range(limits.max_tests)]
