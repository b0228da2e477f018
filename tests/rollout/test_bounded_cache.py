"""The cache of what is made of texts: right, bounded by size, and first to forget what was used longest ago."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.rollout.bounded_cache import BoundedCache, size_of


@given(keys=st.lists(st.text(max_size=12), max_size=60), bound=st.integers(1, 60))
def test_it_never_holds_more_than_its_bound_and_gives_what_was_made(keys: list[str], bound: int) -> None:
    cache = BoundedCache(lambda key: tuple(range(len(key))), bound)
    for key in keys:
        assert cache(key) == tuple(range(len(key)))
        assert cache.weight <= bound


def test_what_was_used_last_is_kept() -> None:
    made: list[str] = []

    def make(key: str) -> str:
        made.append(key)
        return key

    cache = BoundedCache(make, 3 * 2 * 2)
    for key in ("a", "b", "c", "a", "d", "a", "b"):
        cache(key)
    assert made == ["a", "b", "c", "d", "b"]
    assert len(cache) == 3


def test_one_long_text_does_not_push_out_all_others() -> None:
    cache = BoundedCache(lambda key: key, 100)
    cache("a")
    cache("x" * 1000)
    assert len(cache) == 1


def test_an_error_is_raised_and_nothing_kept() -> None:
    cache = BoundedCache(lambda key: 1 // key, 100)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            cache(0)
    assert (len(cache), cache.weight) == (0, 0)


@pytest.mark.parametrize(
    ("value", "size"), [("abc", 4), ((1, 2, 3), 4), ((("ab", "c"),), 7), (5, 1), (None, 1), ((), 1)]
)
def test_sizes_are_those_of_all_that_is_inside(value: object, size: int) -> None:
    assert size_of(value) == size
