"""How a dataset row's columns travel to ``reset`` through a trainer that hands over prompts only.

TRL passes a ``rollout_func`` the prompts of a batch and nothing else of the rows. So the columns ride inside the
prompt: `attach_columns` writes each row's columns, as one JSON string, under the key ``openenv_row`` of the first
message, and `detach_columns` takes it out again before anything is rendered. Why there and so:

- A message is a plain dict that TRL copies, shuffles, repeats, gathers across processes and hands over unchanged, and
  that trainers built on TRL hand on too; chat templates read only the keys they know.
- A lookup table keyed by the prompt's text would confuse rows whose text is the same (every hand of blackjack is "Play
  a hand of blackjack"), and would have to be the same in every process.
- One JSON string keeps each row's values exactly; separate keys would be unified by Arrow across rows and messages,
  with None where a row has no such key.

The columns stay in the dataset as well, so reward functions receive them from TRL as always.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from openenv_trl.errors import ConfigurationError

ROW_KEY = "openenv_row"
"""The message key that carries a row's columns."""

_NOT_FOR_RESET = ("prompt", "completion")


def attach_columns(dataset: Any, *, columns: Sequence[str] | None = None) -> Any:
    """Write each row's columns into its prompt, so that they reach the environment's ``reset``.

    Args:
        dataset: A ``datasets.Dataset`` or ``IterableDataset`` with a ``prompt`` column, or a list of row dicts. A
            prompt is a string, or a list of ``{"role", "content"}`` messages.
        columns: The columns to pass to ``reset``; all but ``prompt`` and ``completion`` if None.

    Returns:
        A dataset of the same kind (a ``datasets.Dataset`` for a list), whose prompts are messages.

    Raises:
        ConfigurationError: The dataset is empty, a row has no prompt, or a column's value is not JSON.
    """
    if isinstance(dataset, list | tuple):
        given = cast("Sequence[Mapping[str, Any]]", dataset)
        if not given:
            raise ConfigurationError("The dataset is empty: give at least one row with a prompt.")
        _check_names({name for row in given for name in row}, columns)
        from datasets import Dataset

        return Dataset.from_list([_attach(row, columns) for row in given])
    if not hasattr(dataset, "map"):
        raise ConfigurationError(
            f"The dataset is a {type(dataset).__name__}; give a datasets.Dataset, an IterableDataset or a list of rows."
        )
    names = getattr(dataset, "column_names", None)
    if names is not None and "prompt" not in names:
        raise ConfigurationError(f"The dataset has no 'prompt' column; it has {sorted(names)}. Rename or add it.")
    if hasattr(dataset, "__len__") and len(dataset) == 0:
        raise ConfigurationError("The dataset is empty: give at least one row with a prompt.")
    if names is not None:
        _check_names(set(names), columns)

    def with_columns(row: Mapping[str, Any]) -> dict[str, Any]:
        return {"prompt": _attach(row, columns)["prompt"]}

    return dataset.map(with_columns)


def detach_columns(prompt: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Split a prompt into the messages to render and the row's columns.

    Args:
        prompt: Messages, as TRL hands them to a ``rollout_func``.

    Returns:
        The messages without the carried columns, and the columns; None where none were attached.

    Raises:
        ConfigurationError: The prompt is not a list of messages.
    """
    if isinstance(prompt, str) or not prompt:
        raise ConfigurationError(
            "The prompt must be a non-empty list of {'role', 'content'} messages; a plain string becomes one when the "
            "dataset goes through rollout.prepare_dataset(dataset) or attach_columns(dataset), and its columns then "
            "reach reset()."
        )
    messages: list[dict[str, Any]] = []
    columns: dict[str, Any] | None = None
    for message in prompt:
        carried = message.get(ROW_KEY)
        if carried is not None:
            columns = orjson.loads(carried)
        # Arrow gives every message of a dataset the union of their keys, with None where a message had none.
        messages.append({k: v for k, v in message.items() if k != ROW_KEY and v is not None})
    return messages, columns


def _check_names(known: set[str], columns: Sequence[str] | None) -> None:
    missing = sorted(set(columns or ()) - known)
    if missing:
        raise ConfigurationError(f"The dataset has no columns {missing}; it has {sorted(known)}.")
    if "self" in (columns if columns is not None else known):
        raise ConfigurationError("A column 'self' cannot be an argument of reset. Rename it.")
    if {"image", "images"} & known:
        raise ConfigurationError(
            "The dataset has images, and rollouts in environments take text prompts only. Remove the column."
        )


def _attach(row: Mapping[str, Any], columns: Sequence[str] | None) -> dict[str, Any]:
    prompt = row.get("prompt")
    if not prompt:
        raise ConfigurationError(f"A row of the dataset has no prompt: {_short(row)}. Each row needs one.")
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
    names = [name for name in row if name not in _NOT_FOR_RESET] if columns is None else columns
    values = {name: row[name] for name in names if name in row}
    try:
        carried = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    except TypeError as error:
        raise ConfigurationError(
            f"The dataset's columns {sorted(values)} go to the environment's reset as JSON; one is not: {error}. "
            "Name the columns that reset needs: attach_columns(dataset, columns=[...])."
        ) from error
    attached = messages[0].get(ROW_KEY)
    if columns is None and attached is not None and _is_part_of(orjson.loads(attached), orjson.loads(carried)):
        carried = attached  # a mixture's row carries its own columns, and none of the other datasets'
    first = {**messages[0], ROW_KEY: carried}
    return {**row, "prompt": [first, *messages[1:]]}


def _is_part_of(carried: dict[str, Any], values: dict[str, Any]) -> bool:
    """Whether a row carries its present values already: all but those that only other rows have."""
    return all(name in values and values[name] == value for name, value in carried.items()) and all(
        value is None for name, value in values.items() if name not in carried
    )


def _short(row: Mapping[str, Any]) -> str:
    text = repr(dict(row))
    return text if len(text) <= 200 else text[:197] + "..."
