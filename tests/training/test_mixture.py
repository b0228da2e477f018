"""A mixture holds each dataset's share of every stretch, each row its own columns, and is the same each time."""

from __future__ import annotations

from collections import Counter

import pytest
from datasets import Dataset, IterableDataset
from hypothesis import given, settings
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError
from openenv_trl.training.columns import detach_columns
from openenv_trl.training.mixture import mix_datasets, mixture_order

WEIGHTS = st.dictionaries(
    st.sampled_from("abcdef"), st.floats(min_value=0.01, max_value=100, allow_nan=False), min_size=1
)


@given(weights=WEIGHTS, length=st.integers(min_value=1, max_value=200))
@settings(max_examples=60, deadline=None)
def test_every_stretch_holds_each_share_to_within_one_row(weights: dict[str, float], length: int) -> None:
    order = mixture_order(weights, length)
    assert len(order) == length
    counts: Counter[str] = Counter()
    for number, name in enumerate(order, start=1):
        counts[name] += 1
        for each, weight in weights.items():
            share = weight / sum(weights.values()) * number
            assert abs(counts[each] - share) < 1 + 1e-3 * number  # weights are taken to six places


def test_all_rows_come_once_before_any_comes_again() -> None:
    games = [{"prompt": "a", "seed": i} for i in range(5)]
    mixed = mix_datasets({"a": games, "b": [{"prompt": "b", "seed": 100}]}, {"a": 5, "b": 1}, length=12)
    seeds = [row["seed"] for row in mixed if row["environment"] == "a"]
    assert sorted(seeds[:5]) == sorted(seeds[5:10]) == list(range(5))
    assert [row["seed"] for row in mixed if row["environment"] == "b"] == [100, 100]


def test_the_seed_decides_the_order_and_nothing_else_does() -> None:
    def seeds(seed: int) -> list[int]:
        data = {name: Dataset.from_list([{"prompt": name, "seed": i} for i in range(50)]) for name in ("a", "b")}
        return mix_datasets(data, seed=seed)["seed"]

    assert list(seeds(1)) == list(seeds(1))
    assert list(seeds(1)) != list(seeds(2))


def test_each_rows_own_columns_reach_reset_and_no_other_datasets_do() -> None:
    mixed = mix_datasets(
        {
            "cards": [{"prompt": "cards", "seed": 1, "decks": 2}],
            "balls": [{"prompt": [{"role": "user", "content": "balls"}], "seed": 2, "size": {"rows": 4}}],
        }
    )
    carried = {row["environment"]: detach_columns(row["prompt"]) for row in mixed}
    assert carried["cards"] == (
        [{"role": "user", "content": "cards"}],
        {"seed": 1, "decks": 2, "environment": "cards"},
    )
    assert carried["balls"][1] == {"seed": 2, "size": {"rows": 4}, "environment": "balls"}
    assert {row["environment"]: row["decks"] for row in mixed} == {"cards": 2, "balls": None}


def test_a_mixture_that_is_prepared_again_keeps_its_rows_columns() -> None:
    from openenv_trl.training.columns import attach_columns

    mixed = mix_datasets({"a": [{"prompt": "a", "level": 1}], "b": [{"prompt": "b", "size": 2}]})
    again = attach_columns(mixed)
    assert [detach_columns(row["prompt"]) for row in again] == [detach_columns(row["prompt"]) for row in mixed]
    changed = attach_columns(mixed.map(lambda row: {"level": 7}))
    assert [detach_columns(row["prompt"])[1]["level"] for row in changed] == [7, 7], (
        "and a changed column is taken over"
    )


@pytest.mark.parametrize(
    ("datasets", "weights", "words"),
    [
        ({}, None, "nothing to mix"),
        ({"a": []}, None, "empty"),
        ({"a": [{"prompt": "x"}]}, {"a": 0}, "weight of 'a' is 0"),
        ({"a": [{"prompt": "x"}]}, {"a": float("nan")}, "weight of 'a'"),
        ({"a": [{"prompt": "x"}], "b": [{"prompt": "x"}]}, {"a": 1}, "weight of 'b' is None"),
        ({"a": [{"prompt": "x"}]}, {"a": 1, "c": 1}, r"weights for \['c'\]"),
        (
            {"a": [{"prompt": "x", "level": "hard"}], "b": [{"prompt": "x", "level": {"depth": 3}}]},
            None,
            "different types",
        ),
    ],
)
def test_what_cannot_be_mixed_is_refused_with_what_to_change(
    datasets: dict[str, list[dict[str, object]]], weights: dict[str, float] | None, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        mix_datasets(datasets, weights)


def test_a_stream_is_refused_with_what_to_use() -> None:
    stream = IterableDataset.from_generator(lambda: iter([{"prompt": "x"}]))
    with pytest.raises(ConfigurationError, match="interleave_datasets"):
        mix_datasets({"a": stream})
