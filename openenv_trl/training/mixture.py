"""One dataset from several, a row at a time, each environment with its share of any stretch of it."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.training.columns import attach_columns
from openenv_trl.training.environments import ENVIRONMENT_COLUMN


def mix_datasets(
    datasets: Mapping[str, Any],
    weights: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    length: int | None = None,
) -> Any:
    """Interleave datasets, for a run of several environments.

    The first n rows hold each dataset's share of n to within one row, for every n: no stretch of training sees one
    environment only by chance. Each dataset's rows come in an order that the seed decides, all of them once before any
    comes again. The same arguments give the same mixture, in every process.

    Args:
        datasets: A ``datasets.Dataset`` or a list of rows, each with a ``prompt``, by the environment's name.
        weights: Each one's share, in any unit; all alike if None.
        seed: Decides the order of each dataset's rows.
        length: Rows of the mixture; as many as the datasets have together if None.

    Returns:
        A ``datasets.Dataset`` with a column ``environment``, ready for the trainer: each row's columns, and no other
        dataset's, reach ``reset``. Columns that a dataset has not are None in its rows.

    Raises:
        ConfigurationError: There is nothing to mix, a weight that is no positive number, or columns of one name that
            are of different types.

    Example:
        >>> rows = mix_datasets({"blackjack": hands, "catch": games}, {"blackjack": 2, "catch": 1}, length=3000)
        >>> rollout = EnvironmentRollout({"blackjack": blackjack_urls, "catch": catch_urls})
        >>> trainer = GRPOTrainer(..., rollout_func=rollout, train_dataset=rollout.prepare_dataset(rows))
    """
    if not datasets:
        raise ConfigurationError('There is nothing to mix: give datasets by name, as {"blackjack": rows, ...}.')
    shares = dict.fromkeys(datasets, 1.0) if weights is None else {name: weights.get(name) for name in datasets}
    unknown = sorted(set(weights or {}) - set(datasets))
    if unknown:
        raise ConfigurationError(f"There are weights for {unknown}, and datasets for {sorted(datasets)} only.")
    attached = {name: _named(name, dataset) for name, dataset in datasets.items()}
    sizes = {name: len(dataset) for name, dataset in attached.items()}
    count = sum(sizes.values()) if length is None else length
    if count < 1:
        raise ConfigurationError(f"length={length} must be at least 1.")
    names = mixture_order(shares, count)
    offset, start = 0, dict[str, int]()
    for name, size in sizes.items():
        start[name] = offset
        offset += size
    rows = {name: _rows_without_end(name, size, seed) for name, size in sizes.items()}
    order = [start[name] + next(rows[name]) for name in names]
    from datasets import concatenate_datasets

    try:
        whole = concatenate_datasets(list(attached.values()))
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            f"The datasets {sorted(datasets)} have columns, or keys of messages, of one name and different types, "
            f"which one dataset cannot hold: {error}. Rename or convert them."
        ) from error
    return whole.select(order)


def mixture_order(weights: Mapping[str, float | None], length: int) -> list[str]:
    """Which name each row has, so that the first n have each name's share of n to within one, for every n.

    Args:
        weights: Each name's share, in any unit.
        length: How many rows.

    Raises:
        ConfigurationError: A weight is missing, or no positive number.

    Source: R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980): of those whose turn may
    come without their being too early, the one that must have it soonest.
    """
    exact: dict[str, Fraction] = {}
    for name, weight in weights.items():
        if weight is None or not 0 < weight < float("inf"):
            raise ConfigurationError(f"The weight of '{name}' is {weight}; it must be a positive number.")
        exact[name] = Fraction(weight).limit_denominator(10**6)
        if not exact[name]:
            raise ConfigurationError(f"The weight of '{name}' is {weight}; give weights of at least 0.000001.")
    total = sum(exact.values())
    shares = {name: weight / total for name, weight in exact.items()}
    if len(shares) == 1:
        return list(shares) * length
    margin = Fraction(1, 2 * len(shares) - 2)
    counts = dict.fromkeys(shares, 0)
    order: list[str] = []
    for number in range(1, length + 1):
        ready = [name for name, share in shares.items() if share * number - counts[name] >= margin]
        chosen = min(ready, key=lambda name: (1 - margin + counts[name]) / shares[name])
        counts[chosen] += 1
        order.append(chosen)
    return order


def _named(name: str, dataset: Any) -> Any:
    """The dataset with its environment's name, and each row's columns in its prompt."""
    if hasattr(dataset, "map") and not hasattr(dataset, "__len__"):
        raise ConfigurationError(
            f"The dataset of '{name}' is a stream, whose rows cannot be chosen. Load it whole, or write the column "
            f"'{ENVIRONMENT_COLUMN}' into each stream and join them with datasets.interleave_datasets."
        )
    whole = attach_columns(dataset)
    column: Sequence[str] = [name] * len(whole)
    if ENVIRONMENT_COLUMN in whole.column_names:
        whole = whole.remove_columns(ENVIRONMENT_COLUMN)
    return attach_columns(whole.add_column(ENVIRONMENT_COLUMN, column))


def _rows_without_end(name: str, size: int, seed: int) -> Any:
    """The numbers of a dataset's rows, in a new order for each time round."""
    draw = random.Random(f"{seed} {name}")
    while True:
        order = list(range(size))
        draw.shuffle(order)
        yield from order
