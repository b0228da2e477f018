"""A row's columns reach the other side exactly, whatever the rows look like."""

from __future__ import annotations

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError
from openenv_trl.training.columns import ROW_KEY, attach_columns, detach_columns

PROMPT = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["seed", "level", "name"]), json_values), min_size=1, max_size=4))
def test_values_of_any_shape_survive_rows_that_differ(rows: list[dict[str, object]]) -> None:
    from openenv_trl.training.columns import _attach

    # The rows' own columns may not fit one Arrow type; the prompts that carry them always do.
    prompts = Dataset.from_list([{"prompt": _attach({"prompt": PROMPT, **row}, None)["prompt"]} for row in rows])
    for row, stored in zip(rows, prompts, strict=True):
        messages, columns = detach_columns(stored["prompt"])
        assert columns == row
        assert messages == PROMPT


def test_rows_with_the_same_text_keep_their_own_columns() -> None:
    dataset = attach_columns(Dataset.from_list([{"prompt": "Play.", "seed": i} for i in range(5)]))
    assert [detach_columns(row["prompt"])[1] for row in dataset] == [{"seed": i} for i in range(5)]
    assert dataset["seed"] == list(range(5)), "reward functions still receive the columns from the trainer"


def test_a_plain_string_prompt_becomes_a_user_message() -> None:
    messages, columns = detach_columns(attach_columns([{"prompt": "Hi", "seed": 1}])[0]["prompt"])
    assert messages == [{"role": "user", "content": "Hi"}]
    assert columns == {"seed": 1}


def test_only_the_named_columns_go_to_reset() -> None:
    dataset = attach_columns([{"prompt": "Hi", "seed": 1, "answer": "42"}], columns=["seed"])
    assert detach_columns(dataset[0]["prompt"])[1] == {"seed": 1}


def test_an_iterable_dataset_carries_its_columns_too() -> None:
    stream = Dataset.from_list([{"prompt": "Hi", "seed": 3}]).to_iterable_dataset()
    row = next(iter(attach_columns(stream)))
    assert detach_columns(row["prompt"])[1] == {"seed": 3}


def test_a_prompt_without_columns_says_so_with_none() -> None:
    assert detach_columns(PROMPT) == (PROMPT, None)


def test_message_keys_that_arrow_filled_with_none_are_not_rendered() -> None:
    messages, _ = detach_columns([{"role": "user", "content": "x", "tool_calls": None, ROW_KEY: "{}"}])
    assert messages == [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ([], "empty"),
        (Dataset.from_list([]), "no 'prompt' column"),
        (Dataset.from_dict({"prompt": []}), "empty"),
        (Dataset.from_list([{"question": "x"}]), "no 'prompt' column"),
        ([{"prompt": "", "seed": 1}], "no prompt"),
        ([{"prompt": "x", "when": object()}], "columns=\\["),
        ({"prompt": ["x"]}, "list of rows"),
        ((row for row in [{"prompt": "x"}]), "list of rows"),
        ([{"prompt": "x", "self": 1}], "'self'"),
        ([{"prompt": "x", "images": []}], "images"),
    ],
)
def test_a_dataset_that_cannot_work_is_refused_with_what_to_change(dataset: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        attach_columns(dataset)


@pytest.mark.parametrize("rows", [[{"prompt": "x", "seed": 1}], Dataset.from_list([{"prompt": "x", "seed": 1}])])
def test_a_column_that_is_not_there_is_named(rows: object) -> None:
    with pytest.raises(ConfigurationError, match="level"):
        attach_columns(rows, columns=["level"])


def test_a_string_prompt_in_a_batch_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="attach_columns"):
        detach_columns("Play.")  # type: ignore[arg-type]
