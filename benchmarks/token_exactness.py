"""Whether a trainer's log-probs are those of the sampling, and which chat templates carry an exact dialogue.

Part one plays 1, 3 and 6 turns with a tiny random model in three ways: this package's rollouts; decoding and encoding
the whole conversation again at each turn; and the public package's own bridge to TRL, in its own virtual environment.
Part two plays a dialogue with each chat template of the installed TRL and compares it with whole renderings, as the
tests do. Part three measures the work that a dialogue takes.

    python benchmarks/token_exactness.py [--episodes 16] [--quick]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _bridges import Measured, Sampler, ours, public, retokenised
from _record import Target, record
from _rounds import PARTS
from _servers import PUBLIC_PYTHON

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import Completion, Dialogue, DialogueTemplate
from openenv_trl.training.tiny_policy import make_model

TESTS = Path(__file__).parent.parent / "tests" / "rollout"
TURNS = (1, 3, 6)
TEMPLATE = "qwen3_instruct_2507"


def loaded(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def bridges(episodes: int) -> dict[str, Any]:
    """Part one: by way and by number of turns."""
    exactness = loaded("exactness_models", TESTS / "exactness" / "conftest.py")
    tokenizer = exactness.make_model(TEMPLATE, loaded("rollout_models", TESTS / "conftest.py").make_tokenizer).tokenizer
    model = make_model(tokenizer)
    ways: dict[str, Callable[[Sampler, int, int], Measured]] = {"ours": ours, "retokenised": retokenised}
    if PUBLIC_PYTHON.exists():
        ways["public"] = lambda sampler, turns, count: public(sampler, str(PUBLIC_PYTHON), turns, count)
    table: dict[str, Any] = {}
    for name, way in ways.items():
        for turns in TURNS:
            figures = way(Sampler(model, tokenizer, seed=turns), turns, episodes).figures()
            table.setdefault(name, {})[f"{turns}_turns"] = figures
            print(f"{name:12} {turns} turns: {figures}", file=sys.stderr, flush=True)
    return table


def templates() -> dict[str, Any]:
    """Part two: what each template carries, once the tests' comparisons have passed for it."""
    exactness = loaded("exactness_models", TESTS / "exactness" / "conftest.py")
    checks = loaded("exactness_checks", TESTS / "exactness" / "test_every_template.py")
    new_tokenizer = loaded("rollout_models", TESTS / "conftest.py").make_tokenizer
    table: dict[str, Any] = {}
    for path in sorted(exactness.folder().glob("*.jinja")):
        model = exactness.make_model(path.stem, new_tokenizer)
        table[model.name] = {
            "tool_calls": _tool_calls(model, checks),
            "several_calls": _several_calls(model, checks),
            "texts": _passes(lambda: checks.test_text_conversations_stand_as_a_whole_rendering_writes_them(model)),  # noqa: B023
            "parser": _parser(model),
            "drops_thoughts_in_texts": DialogueTemplate(
                model.tokenizer, answer_role="user", thoughts="template"
            ).drops_thoughts,
        }
    return table


def _passes(check: Callable[[], None]) -> str:
    try:
        check()
    except AssertionError:
        return "not exact"
    return "exact"


def _tool_calls(model: Any, checks: Any) -> str:
    if not model.takes_tools:
        try:
            model.template("tool")
        except ConfigurationError:
            return "refused"
        return "not refused"
    outcome = _passes(lambda: checks.play(model, "tool", [checks.SYSTEM, checks.USER], checks.TEXTS))
    differs = model.family in checks.LATER_ANSWERS_DIFFER
    return "exact, each answer as the first" if differs and outcome == "exact" else outcome


def _several_calls(model: Any, checks: Any) -> str:
    if not model.takes_tools:
        return "-"
    if model.family in checks.ONE_CALL_ONLY | checks.FIRST_CALL_ONLY:
        return "one a message"
    return _passes(lambda: checks.play(model, "tool", [checks.USER], checks.TEXTS[:3], calls_a_turn=3))


def _parser(model: Any) -> str:
    from trl.chat_template_utils import add_response_schema

    if not model.takes_tools:
        return "-"
    original = path if (path := _source(model.family)).exists() else _source(model.name)
    tokenizer = type("Holder", (), {"chat_template": original.read_text(encoding="utf-8")})()
    try:
        add_response_schema(tokenizer)
    except ValueError:
        return "user's own"
    return "TRL's"


def _source(name: str) -> Path:
    spec = importlib.util.find_spec("trl")
    assert spec is not None
    return Path(str(spec.origin)).parent / "chat_templates" / f"{name}.jinja"


def work(conversations: int) -> dict[str, Any]:
    """Part three: what a dialogue costs, beside rendering and encoding the conversation anew at each turn."""
    exactness = loaded("exactness_models", TESTS / "exactness" / "conftest.py")
    model = exactness.make_model(TEMPLATE, loaded("rollout_models", TESTS / "conftest.py").make_tokenizer)
    template: DialogueTemplate = model.template("tool")
    table: dict[str, Any] = {}
    for turns in (3, 12, 48):
        count = max(1, conversations * 3 // turns)
        said, sampled = model.message("tool", 7100)
        seconds, tokens = 0.0, 0
        for number in range(count):
            prompt = [{"role": "user", "content": f"Play game {number} of {turns}."}]
            began = time.process_time()
            dialogue = Dialogue(template, prompt)
            for turn in range(turns):
                dialogue.append_completion(Completion(sampled, [-1.0] * len(sampled), finished=True))
                dialogue.append_answers(
                    [("hit", f"Hand {number}, card {turn}: 10, 6. Sum {turn + 16}, no usable ace.")]
                )
            seconds += time.process_time() - began
            tokens += len(dialogue.context_ids())
        began = time.process_time()
        for number in range(count):
            messages: list[Any] = [{"role": "user", "content": f"Play game {number} of {turns}."}]
            for turn in range(turns):
                model.ids(model.rendered(messages, begin=True, tools=True))
                answer = f"Hand {number}, card {turn}: 10, 6. Sum {turn + 16}, no usable ace."
                messages += [said, {"role": "tool", "name": "hit", "content": answer}]
        anew = time.process_time() - began
        table[f"{turns}_turns"] = {
            "conversations": count,
            "tokens": tokens,
            "dialogue_tokens_per_cpu_s": round(tokens / seconds),
            "dialogue_cpu_us_per_turn": round(seconds / (count * turns) * 1e6, 1),
            "anew_cpu_us_per_turn": round(anew / (count * turns) * 1e6, 1),
        }
        print(f"work {turns} turns: {table[f'{turns}_turns']}", file=sys.stderr, flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=16, help="episodes of each way and number of turns")
    parser.add_argument("--quick", action="store_true", help="few episodes; results/ stays as it is")
    given = parser.parse_args()
    torch.set_num_threads(1)
    ways = bridges(2 if given.quick else given.episodes)
    results = {"bridges": ways, "templates": templates(), "work": work(20 if given.quick else 200)}
    mean = "mean_abs_logprob_difference"
    inexact = [n for n, row in results["templates"].items() if "not" in row["tool_calls"] + row["texts"]]
    targets = [
        *(
            Target(
                f"mean |log p(training) - log p(sampling)|, ours, {turns} turns",
                ways["ours"][f"{turns}_turns"][mean],
                "< 0.00001",
            )
            for turns in TURNS
        ),
        Target("drift counted, ours, all turns", sum(ways["ours"][f"{t}_turns"]["drift"] for t in TURNS), "<= 0"),
        Target("chat templates of TRL that carry no exact dialogue", len(inexact), "<= 0"),
    ]
    kept = ("torch", "transformers", "trl", "tokenizers")
    if given.quick:
        record("token_exactness", results, targets, kept, PARTS / "token_exactness-quick")
    else:
        record("token_exactness", results, targets, kept)


if __name__ == "__main__":
    main()
