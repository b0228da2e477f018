"""Long observations: cut where the setting says, with a note, counted, and never longer than promised."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openenv_trl.rollout import DialogueTemplate
from openenv_trl.rollout.observation_cut import shorten
from openenv_trl.types import StepResult

pytestmark = pytest.mark.anyio
WORDS = " ".join(f"w{index}" for index in range(300))


@pytest.fixture(scope="module")
def template(tokenizer: Any) -> DialogueTemplate:
    return DialogueTemplate(tokenizer, answer_role="user")


@pytest.mark.parametrize(
    ("cut", "pattern"),
    [
        ("tail", "w0 w1 .* \\[\\.\\.\\. [0-9]+ tokens cut\\]$"),
        ("head", "^\\[\\.\\.\\. [0-9]+ tokens cut\\] .*w298 w299$"),
        ("middle", "^w0 w1 .* \\[\\.\\.\\. [0-9]+ tokens cut \\.\\.\\.\\] .*w298 w299$"),
    ],
)
def test_what_is_left_out_is_where_the_setting_says(template: DialogueTemplate, cut: Any, pattern: str) -> None:
    import re

    text, dropped = template.shorten(WORDS, 40, cut)
    assert re.search(pattern, text)
    assert f" {dropped} tokens cut" in text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(
    text=st.text(max_size=80),
    max_tokens=st.integers(1, 40),
    cut=st.sampled_from(["tail", "head", "middle"]),
)
def test_what_is_kept_was_in_the_text_and_no_more_than_promised(
    template: DialogueTemplate, tokenizer: Any, text: str, max_tokens: int, cut: Any
) -> None:
    text = template.defuse(text)[0]
    count = len(tokenizer.encode(text, add_special_tokens=False))
    short, dropped = template.shorten(text, max_tokens, cut)
    assert dropped == max(count - max_tokens, 0)
    if not dropped:
        assert short == text
        return
    before, _, after = short.partition("[...")
    after = after.rpartition("]")[2]
    kept = [part for part in (before.removesuffix(" "), after.removeprefix(" ")) if part]
    if cut != "head" and before:
        assert text.startswith(before.removesuffix(" "))
    if cut != "tail" and after:
        assert text.endswith(after.removeprefix(" "))
    # A cut may stand between spaces that the tokenizer takes together: a token more on each side.
    assert sum(len(tokenizer.encode(part, add_special_tokens=False)) for part in kept) <= max_tokens + 2


def test_a_text_of_many_megabytes_is_not_encoded_as_a_whole() -> None:
    encoded: list[int] = []

    def encode(text: str) -> list[int]:
        encoded.append(len(text))
        return [ord(c) for c in text]

    text, dropped = shorten("ab" * 5_000_000, 10, "middle", encode=encode, decode=lambda ids: "".join(map(chr, ids)))
    assert text == f"ababa [... about {dropped} tokens cut ...] babab"
    assert dropped == 10_000_000 - 10
    assert max(encoded) < 10_000


async def test_a_run_cuts_and_counts(make_engine: Any, say: Any, tool_call: Any, tasks: Any) -> None:
    async def talks(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        return StepResult({"message": WORDS}, 1.0 if call == "step" else None, session.steps == 2)

    limits = {"max_observation_tokens": 30, "observation_cut": "head", "max_completion_tokens": 2_000}
    engine, _ = make_engine(talks, limits=limits)
    (trajectory,) = await engine.run(tasks(1), say(tool_call("hit")))
    assert trajectory.turns[0].observations[0].endswith("w299")
    assert trajectory.turns[0].observations[0].startswith("[... ")
    assert trajectory.turns[0].truncated_observation_tokens > 0
    assert engine.metrics["truncated_observation_tokens"] > 0
