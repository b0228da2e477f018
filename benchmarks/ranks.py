"""Two training processes that share one vLLM server, and whose episodes need different numbers of turns.

A shared server makes each generation a collective call: the prompts of all ranks are gathered, the first rank asks,
the answers are broadcast. TRL's own tool loop calls it on each rank as often as that rank's episodes need. Once a rank
needs one turn more than another, the ranks meet in calls that are not the same, and the job aborts or waits for ever.
Here each loop runs in both set-ups, with TRL's own generation code; only the vLLM server is a stand-in, with replies
that follow from the prompts.

    python benchmarks/ranks.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from _record import Target, record, spread

from openenv_trl.providers import ProcessProvider
from openenv_trl.training.launch import launch_command
from openenv_trl.training.tiny_policy import make_tiny_policy
from openenv_trl.types import Tool

WORKER = Path(__file__).parents[1] / "tests" / "training" / "distributed" / "worker.py"
COLLECTIVE_TIMEOUT_S = 40
PATIENCE_S = 400


def run_once(loop: str, rounds: list[int], url: str, model: Path) -> dict[str, Any]:
    """One run of two ranks: whether it finished, and what was said if not."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = {"name": "run", "loop": loop, "rounds": rounds, "steps": 2}
        settings = {"url": url, "model": str(model), "output": folder, "scenarios": [scenario]}
        file = Path(folder, "settings.json")
        file.write_text(json.dumps({**settings, "timeout_s": COLLECTIVE_TIMEOUT_S}))
        began = time.monotonic()
        try:
            done = subprocess.run(
                launch_command(WORKER, [str(file)], num_processes=2),
                env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"finished": False, "seconds": PATIENCE_S, "said": f"nothing for {PATIENCE_S} s"}
        seconds = time.monotonic() - began
        results = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("run_*.json"))]
        errors = [result["error"] for result in results if result["error"]]
        finished = done.returncode == 0 and len(results) == 2 and not errors
        said = "" if finished else (errors or [_last_error(done.stderr)])[0]
        steps = [result["seconds"] for result in results]
        return {"finished": finished, "seconds": seconds, "training_s": max(steps, default=None), "said": said[:300]}


def _last_error(text: str) -> str:
    found = re.findall(r"(?:\w+Error|terminate called|what\(\)|RuntimeError)[^\n]*", text)
    return found[-1] if found else text[-300:]


def main() -> None:
    """Measure and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="Runs of each loop in each set-up.")
    rounds = parser.parse_args().rounds
    set_ups = {"equal": [2, 2], "unequal": [1, 3]}
    outcomes: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder, ProcessProvider(str(WORKER.parent / "rounds_env")) as servers:
        make_tiny_policy(
            folder, ["Play 3 rounds."] * 8, [Tool(name="hit"), Tool(name="stand")], layers=1, hidden_size=32
        )
        for _ in range(rounds):
            for set_up, turns in set_ups.items():
                for loop in ("ours", "trl"):
                    outcome = run_once(loop, turns, servers.base_urls[0], Path(folder))
                    outcomes.setdefault(f"{loop}, {set_up} turns", []).append(outcome)
                    print(f"{loop:>5}, {set_up:>8} turns: {outcome}", flush=True)
    results = {
        name: {
            "runs": len(runs),
            "finished": sum(run["finished"] for run in runs),
            "seconds": spread([run["seconds"] for run in runs], digits=1),
            "said": sorted({run["said"] for run in runs if run["said"]}),
        }
        for name, runs in outcomes.items()
    }
    targets = [
        Target(f"runs that finished: {name}", results[name]["finished"], f">= {rounds}")
        for name in ("ours, equal turns", "ours, unequal turns")
    ]
    record("ranks", results, targets, ["trl", "torch", "transformers", "accelerate"])


if __name__ == "__main__":
    main()
