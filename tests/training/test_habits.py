"""Random players have habits that depend on what they read, favour nothing together, and play at random unnamed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest

from openenv_trl.rollout import DialogueTemplate, SamplingParameters, ToolActions
from openenv_trl.training.habits import HabitualPolicy, as_player
from openenv_trl.training.tiny_policy import make_tokenizer
from openenv_trl.types import Tool

HANDS = ["Sum 16, no usable ace.", "Sum 20, usable ace.", "Sum 5, no usable ace.", "Sum 11, usable ace."]
TOOLS = [Tool(name="hit"), Tool(name="stand")]
PROMPT = [{"role": "user", "content": "Play."}]


@pytest.fixture(scope="module")
def template() -> DialogueTemplate:
    return DialogueTemplate(make_tokenizer([*HANDS, "Play. As player 0."] * 8, TOOLS), TOOLS, answer_role="tool")


def hits(template: DialogueTemplate, hand: str, player: int | None, seed: int = 0, count: int = 400) -> float:
    """How often a player hits on reading a hand."""
    actions = ToolActions(TOOLS)
    policy = HabitualPolicy(template.tokenizer, template, actions, seed=seed)
    messages = PROMPT if player is None else as_player(PROMPT, player)
    prompt = template.prompt_ids([{**messages[0], "content": f"{messages[0]['content']}\n\n{hand}"}])

    async def play() -> Counter[str]:
        completions: Any = await policy.generate([prompt] * count, SamplingParameters(max_new_tokens=8))
        calls = [actions.parse(c.ids, template).calls[0].name for c in completions]
        return Counter(calls)

    return anyio.run(play)["hit"] / count


def test_without_a_player_play_is_uniformly_random(template: DialogueTemplate) -> None:
    for hand in HANDS:
        assert 0.4 < hits(template, hand, None) < 0.6


def test_what_a_player_does_depends_on_what_it_reads(template: DialogueTemplate) -> None:
    spread = [[hits(template, hand, player) for hand in HANDS] for player in range(8)]
    assert sum(max(rates) - min(rates) for rates in spread) / 8 > 0.4


def test_a_player_and_its_mirror_image_favour_nothing_together(template: DialogueTemplate) -> None:
    for player in (0, 2, 4):
        for hand in HANDS:
            assert abs(hits(template, hand, player) + hits(template, hand, player + 1) - 1.0) < 0.15


def test_the_player_is_named_in_the_last_message() -> None:
    named = as_player([{"role": "system", "content": "s"}, *PROMPT], 3)
    assert [m["content"] for m in named] == ["s", "Play. As player 3."]
    assert PROMPT[0]["content"] == "Play."
