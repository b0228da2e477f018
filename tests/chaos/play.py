"""A program that plays episodes which hang, until somebody interrupts it: ``play.py <server> <bell>``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from openenv_trl.rollout import Task
from openenv_trl.rollout.play import play_tasks, run_blocking


def main() -> None:
    spec = importlib.util.spec_from_file_location("fixtures", Path(__file__).parent.parent / "rollout" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    fixtures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fixtures)
    tokenizer = fixtures.make_tokenizer()
    prompt = [{"role": "user", "content": "Play."}]
    tasks = [Task(prompt, {"seed": seed, "fault": "ring", "at": 1}) for seed in range(4)]
    policy = fixtures.SaysInTurn(tokenizer, fixtures.call("hit"))

    async def play() -> None:
        await play_tasks(tasks, [sys.argv[1]], tokenizer, lambda engine: policy, concurrency=4)

    if sys.argv[2] == "main":
        import anyio

        anyio.run(play)
    else:
        run_blocking(play)


main()
