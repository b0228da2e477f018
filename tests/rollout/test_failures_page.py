"""``docs/failures.md`` says what the code does: its table has every end reason, and its YAML is loaded."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from openenv_trl.environment import Environment
from openenv_trl.rollout import EndReason, RetryWithBackOff, RolloutLimits, RolloutStrategies
from openenv_trl.wire.tools import ToolErrorType

PAGE = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| [^|]*\| ([^|]*) \| (yes|no) \| ([^|]*) \|$", PAGE, re.MULTILINE)


def test_the_table_has_every_end_reason_and_what_becomes_of_it() -> None:
    assert {name for name, *_ in ROWS} == {reason.value for reason in EndReason}
    retry, limits = RetryWithBackOff(), RolloutLimits()
    for name, tried_again, scored, shown in ROWS:
        reason = EndReason(name)
        assert (scored == "no") == reason.is_failure, name
        retried = reason.is_failure and retry.pause_s(reason, 1, limits, 0.0) is not None
        assert tried_again.startswith("yes") == retried, name
        assert not (shown.startswith("yes") and reason.is_failure), name


def test_every_kind_of_tool_error_has_its_row() -> None:
    section = PAGE[PAGE.index("## Tool errors") : PAGE.index("## Strategies")]
    assert all(f"`{kind.value}`" in section for kind in ToolErrorType)


def test_its_yaml_is_loaded_and_changes_every_strategy() -> None:
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    whole, hedging = (RolloutStrategies.model_validate(block) for block in blocks)
    assert set(blocks[0]) == set(RolloutStrategies.model_fields)
    assert [getattr(whole, name).type for name in ("retry", "straggler", "over_sampling", "refill")] == [
        "back_off",
        "cut",
        "extra",
        "fresh",
    ]
    assert hedging.straggler.type == "hedge"


def test_what_it_names_is_there() -> None:
    assert Environment.REPEATABLE is False
    assert all(f"`{name}`" in PAGE for name in RolloutLimits.model_fields if name.endswith("_timeout_s"))
