"""What a trainer's data sets have beside their prompts, asked once each."""

from __future__ import annotations

from typing import Any, cast


class FurtherColumns:
    """Whether data sets have columns beside the prompt, which must then be attached to it."""

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}

    def of(self, dataset: Any) -> bool:
        """Whether this one has; a stream that does not say is asked for its first row.

        Args:
            dataset: A data set, several by name as for evaluation, or None.
        """
        if dataset is None:
            return False
        if isinstance(dataset, dict):
            return any(self.of(each) for each in cast("dict[str, Any]", dataset).values())
        if id(dataset) not in self._known:
            names: Any = getattr(dataset, "column_names", None)
            if names is None:
                names = next(iter(dataset), ())
            known: set[str] = {*names}
            self._known[id(dataset)] = bool(known - {"prompt", "completion"})
        return self._known[id(dataset)]
