"""What a check found: a list of sentences, each with a stable code and the change that would settle it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from openenv_trl.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.table import Table

Level = Literal["error", "warning", "note"]
"""An "error" breaks training or serving; a "warning" is likely to; a "note" may well be meant so."""

_ORDER: dict[Level, int] = {"error": 0, "warning": 1, "note": 2}
_STYLE: dict[Level, str] = {"error": "bold red", "warning": "yellow", "note": "dim"}


@dataclass(frozen=True)
class Finding:
    """One promise that an environment does not keep.

    Attributes:
        code: A name that stays the same between releases, such as ``"seed-replay"``.
        level: How grave it is.
        message: What was seen, and what to change.
    """

    code: str
    level: Level
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.message} [{self.code}]"


class CheckReport(list[Finding]):
    """The findings on one environment, the gravest first. An empty report is false, like any empty list.

    Args:
        environment_name: The name of the environment's class.
        findings: What was found, in any order.
    """

    def __init__(self, environment_name: str, findings: Iterable[Finding] = ()) -> None:
        super().__init__(sorted(findings, key=lambda finding: _ORDER[finding.level]))
        self.environment_name = environment_name

    @property
    def ok(self) -> bool:
        """Whether nothing graver than a note was found."""
        return all(finding.level == "note" for finding in self)

    @property
    def codes(self) -> list[str]:
        """The codes of the findings, in the order of the report."""
        return [finding.code for finding in self]

    def raise_for_errors(self) -> None:
        """Do nothing where no finding is an error.

        Raises:
            ConfigurationError: Some finding is an error; the text is the whole report.
        """
        if any(finding.level == "error" for finding in self):
            raise ConfigurationError(str(self))

    def __str__(self) -> str:
        if not self:
            return f"{self.environment_name}: no findings."
        return "\n".join([f"{self.environment_name}: {self._summary()}", *(f"  {finding}" for finding in self)])

    def __repr__(self) -> str:
        return f"CheckReport({self.environment_name!r}, {list(self)!r})"

    def __rich__(self) -> Table:
        """The same as a table, where the report is printed by rich."""
        from rich.table import Table
        from rich.text import Text

        title = f"{self.environment_name}: {self._summary() if self else 'no findings.'}"
        table = Table("level", "code", "what to change", title=title, title_justify="left")
        for finding in self:
            table.add_row(Text(finding.level, _STYLE[finding.level]), Text(finding.code), Text(finding.message))
        return table

    def _summary(self) -> str:
        counts = ((level, sum(finding.level == level for finding in self)) for level in _ORDER)
        return ", ".join(f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts if count)
