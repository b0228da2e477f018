"""An episode whose model is not shown its earlier thoughts: several rows, each exactly as it was sampled."""

from __future__ import annotations

from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import EndReason, TextActions
from openenv_trl.types import StepResult

pytestmark = pytest.mark.anyio
# Drops the thoughts of all messages but the last, as Qwen3's template does in dialogues of texts.
DROPS = """\
{%- for m in messages %}<|im_start|>{{ m.role }}
{% set said = m.content.split('</think>')[-1].lstrip('\\n') -%}
{{ m.content if loop.last or m.role != 'assistant' else said }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
DROPS_SOME = DROPS.replace("loop.last", "loop.index == 2")
SAID = "<think>\nHm.\n</think>\n\nhit"


async def three(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
    reward = None if call == "reset" else 1.0
    return StepResult({"message": f"Step {session.steps}."}, reward, session.steps == 3)


def settings(thoughts: str, chat_template: str = DROPS) -> dict[str, Any]:
    actions = TextActions(lambda text: {"say": text} if text == "hit" else None)
    return {"actions": actions, "tools": [], "chat_template": chat_template, "thoughts": thoughts}


async def test_each_row_is_the_context_that_the_policy_was_given_and_what_it_sampled(
    make_engine: Any, say: Any, tasks: Any, tokenizer: Any
) -> None:
    engine, _ = make_engine(three, **settings("template"))
    policy = say(SAID)
    (trajectory,) = await engine.run(tasks(1), policy)
    rows = trajectory.as_rows(0)
    assert [row.prompt_ids for row in rows] == policy.prompts
    sampled = tokenizer.encode(SAID + "<|im_end|>", add_special_tokens=False)
    assert [row.completion_ids for row in rows] == [sampled] * 3
    assert [row.mask for row in rows] == [[1] * len(sampled)] * 3
    assert tokenizer.decode(policy.prompts[2]).count("Hm.") == 0
    assert tokenizer.decode(policy.prompts[2]).count("hit") == 2
    assert (trajectory.drift, engine.metrics["drift"], trajectory.reward) == (0, 0.0, 3.0)
    trajectory.earlier[0].completion_ids[0] += 1
    assert trajectory.drift == 1


async def test_a_trainer_of_one_row_a_prompt_gets_the_last_message_in_its_true_context(
    make_engine: Any, say: Any, tasks: Any
) -> None:
    engine, _ = make_engine(three, **settings("template"))
    policy = say(SAID)
    (trajectory,) = await engine.run(tasks(1), policy)
    row = trajectory.as_row(0)
    assert row == trajectory.as_rows(0)[-1]
    assert row.prompt_ids == policy.prompts[-1]


async def test_with_thoughts_kept_there_is_one_row_whose_context_is_all_that_was_sampled(
    make_engine: Any, say: Any, tasks: Any, tokenizer: Any
) -> None:
    engine, _ = make_engine(three, **settings("keep"))
    policy = say(SAID)
    (trajectory,) = await engine.run(tasks(1), policy)
    (row,) = trajectory.as_rows(0)
    assert tokenizer.decode(policy.prompts[2]).count("Hm.") == 2
    for prompt in policy.prompts:
        assert (row.prompt_ids + row.completion_ids)[: len(prompt)] == prompt


async def test_a_failed_episode_gives_no_row_to_learn_from(make_engine: Any, say: Any, tasks: Any) -> None:
    async def fails_at_last(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if session.steps == 3:
            raise RuntimeError("gone")
        return await three(session, call, argument)

    engine, _ = make_engine(fails_at_last, limits={"max_attempts": 1}, **settings("template"))
    (trajectory,) = await engine.run(tasks(1), say(SAID))
    assert trajectory.end_reason.is_failure
    (row,) = trajectory.as_rows(0)
    assert sum(row.mask) == 0


async def test_the_limit_of_tokens_is_that_of_the_context(make_engine: Any, say: Any, tasks: Any) -> None:
    limits = {"max_completion_tokens": 90}
    (kept,) = await make_engine(three, limits=limits, **settings("keep"))[0].run(tasks(1), say(SAID))
    (left_out,) = await make_engine(three, limits=limits, **settings("template"))[0].run(tasks(1), say(SAID))
    assert kept.end_reason is EndReason.MAX_TOKENS
    assert left_out.end_reason is EndReason.DONE


def test_a_template_that_drops_some_thoughts_is_refused_with_the_way_out(make_engine: Any) -> None:
    with pytest.raises(ConfigurationError, match='Set thoughts="keep"'):
        make_engine(three, **settings("template", DROPS_SOME))
