"""One rank of a training run: what `test_ranks.py` starts several of, and `benchmarks/ranks.py` too.

    torchrun --nproc_per_node 2 worker.py SETTINGS.json

Generation goes through TRL's own code for a shared vLLM server, in which every call is collective: all ranks' prompts
are gathered, the first rank asks the server, and the answers are broadcast. Only the server itself is a stand-in, whose
replies follow from the prompts: "Play 3 rounds." is answered with three calls of a tool.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration

from openenv_trl import environment_reward
from openenv_trl.rollout import RolloutLimits
from openenv_trl.training import CurriculumLevel, EnvironmentRollout, StagedCurriculum

CALL = '<tool_call>\n{"name": "hit", "arguments": {}}\n</tool_call><|im_end|>'
STOP = "That was all.<|im_end|>"


class VLLMServer:
    """Stands in for the client of a vLLM server: it is asked by the first rank, for the prompts of all."""

    def __init__(self, tokenizer: Any) -> None:
        self.widths: list[int] = []
        self._tokenizer = tokenizer

    def generate(self, prompts: list[list[int]], n: int = 1, **_: Any) -> dict[str, Any]:
        self.widths.append(len(prompts) * n)
        each = [self._tokenizer.encode(self._reply(self._tokenizer.decode(ids))) for ids in prompts]
        replies = [list(ids) for ids in each for _ in range(n)]
        return {
            "prompt_ids": prompts,
            "completion_ids": replies,
            "logprobs": [[[-1.0]] * len(ids) for ids in replies],
        }

    def _reply(self, text: str) -> str:
        rounds = re.search(r"Play (\d+) rounds", text)
        return CALL if rounds and text.count("<|im_start|>tool\n") < int(rounds[1]) else STOP


class TakesRounds:
    """The environment that TRL's own loop steps: in this process, and without an end of its own."""

    def reset(self, **_: Any) -> None:
        """Begins."""

    def hit(self) -> str:
        """Take a card."""
        return "taken"

    def get_reward(self) -> float:
        return 1.0


def generate_through_a_shared_server(trainer: Any) -> VLLMServer:
    """Make the trainer generate as with ``use_vllm=True, vllm_mode="server"``."""
    server = VLLMServer(trainer.processing_class)
    generation: Any = object.__new__(VLLMGeneration)
    for name, value in {
        "accelerator": trainer.accelerator,
        "mode": "server",
        "vllm_client": server,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": None,
        "repetition_penalty": 1.0,
        "max_completion_length": trainer.args.max_completion_length,
        "logprobs": 0,
        "structured_outputs_regex": None,
        "generation_kwargs": {},
        "enable_sleep_mode": False,
        "sync_weights": lambda: None,
    }.items():
        setattr(generation, name, value)
    trainer.use_vllm = trainer.args.use_vllm = True
    trainer.vllm_mode = trainer.args.vllm_mode = "server"
    trainer._last_loaded_step = -1
    trainer.vllm_importance_sampling_correction = False
    trainer.vllm_generation = generation
    return server


def run(scenario: dict[str, Any], settings: dict[str, Any], rank: int) -> dict[str, Any]:
    rounds: list[int] = scenario["rounds"]
    ways = scenario.get("ways", ["none"] * len(rounds))
    rows = [
        {"prompt": [{"role": "user", "content": f"Play {n} rounds."}], "rounds": n, "way": way}
        for n, way in zip(rounds, ways, strict=True)
    ] * 4
    urls = scenario.get("urls", {}).get(str(rank), settings["url"])
    levels = [CurriculumLevel(name=name, reset={"level": name}) for name in ("first", "second")]
    rollout = EnvironmentRollout(
        urls,
        limits=RolloutLimits(max_turns=8, max_attempts=1, connect_timeout_s=10),
        max_skipped_steps=scenario.get("max_skipped_steps", 0),
        curriculum=StagedCurriculum(levels=tuple(levels), window=4, threshold=1.0, review_fraction=0.0),
        trajectory_dir=Path(settings["output"], scenario["name"]),
    )
    ours = scenario.get("loop", "ours") == "ours"
    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    trainer = GRPOTrainer(
        model=settings["model"],
        processing_class=tokenizer,
        reward_funcs=[environment_reward()] if ours else None,
        train_dataset=rollout.prepare_dataset(rows),
        args=GRPOConfig(
            output_dir=settings["output"],
            max_steps=scenario.get("steps", 2),
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=200,
            logging_steps=1,
            learning_rate=1e-3,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            shuffle_dataset=False,
        ),
        **({"rollout_func": rollout} if ours else {"environment_factory": TakesRounds}),
    )
    server = generate_through_a_shared_server(trainer) if scenario.get("shared_server", True) else None
    error: BaseException | None = None
    began = time.monotonic()
    try:
        with rollout:
            trainer.train()
    except Exception as raised:
        error = raised
    return {
        "error": None if error is None else f"{type(error).__name__}: {error}",
        "seconds": time.monotonic() - began,
        "rewards": [entry["reward"] for entry in trainer.state.log_history if "reward" in entry],
        "widths": server.widths if server is not None else None,
        "curriculum": rollout.curricula.state(),
        "weights": float(sum(p.detach().double().abs().sum() for p in trainer.model.parameters())),
    }


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    # The trainer takes the group that is there; a rank that waits in vain is to say so soon.
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=settings.get("timeout_s", 60)))
    for scenario in settings["scenarios"]:
        result = run(scenario, settings, rank)
        path = Path(settings["output"], f"{scenario['name']}_{rank}.json")
        path.write_text(json.dumps(result))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
