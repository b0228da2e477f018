"""One generation batch of TRL's ``GRPOTrainer``, by its own loop and by this package's two ways into it.

Seconds of ``GRPOTrainer._generate_and_score_completions`` for one batch: resets, generation, tool calls, rewards and
advantages, and no training step. What the model writes is scripted: so many calls of a tool that waits, then a word.
So the figure is what the environment takes, and the loop around it. Sessions are open from an untimed batch before.

- ``trl``: TRL's own loop over a class in this process, whose tool and reset sleep; or, in ``served_two_turns``, over
  a blocking client of a served environment.
- ``factory``: ``EnvironmentGRPOTrainer`` with ``make_environment_factory``, over one server process.
- ``factory_stock``: the same factory under TRL's own trainer, where nothing runs side by side.
- ``rollout``: TRL's trainer with ``rollout_func=EnvironmentRollout(...)``, over the same server.

    python benchmarks/trl_loop.py [--rounds 5] [--quick]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from _record import RESULTS, Target, record, spread
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from openenv_trl import GenericEnvClient, ProcessProvider, environment_reward
from openenv_trl.training import EnvironmentGRPOTrainer, EnvironmentRollout, make_environment_factory, make_tiny_policy
from openenv_trl.types import Tool

PACKAGES = ["openenv-trl", "trl", "transformers", "torch", "anyio", "picows", "accelerate"]
PROMPT = [{"role": "user", "content": "Wait."}]
WAIT_TOOL = Tool(
    name="wait",
    description="Wait.",
    input_schema={"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]},
)
QUICK = Path(__file__).parent.parent / "outputs" / "benchmarks" / "trl_loop-quick"


@dataclass(frozen=True)
class Scenario:
    """What a batch does.

    Attributes:
        generations: Rollouts at once.
        turns: Messages with a tool call, before the last one.
        tool_s: Seconds that the tool waits.
        reset_s: Seconds that the reset waits.
        served: Whether TRL's own loop calls a server too.
        trl_rounds: Rounds of TRL's own loop; fewer where one takes long.
    """

    generations: int = 16
    turns: int = 1
    tool_s: float = 0.1
    reset_s: float = 0.0
    served: bool = False
    trl_rounds: int | None = None


SCENARIOS = {
    "one_turn": Scenario(),
    "three_turns": Scenario(turns=3),
    "reset": Scenario(tool_s=0.0, reset_s=0.1),
    "served_two_turns": Scenario(turns=2, served=True),
    "wide": Scenario(generations=256, trl_rounds=1),
}
AIMS = {"one_turn": 0.15, "three_turns": 0.40, "reset": 0.15, "served_two_turns": 0.30, "wide": 0.25}


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds; results/ stays as it is")
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), default=[])
    given = parser.parse_args()
    torch.set_num_threads(1)
    rounds = 2 if given.quick else given.rounds
    results: dict[str, Any] = {"rounds": rounds}
    path = Path(tempfile.mkdtemp(prefix="trl-loop-"))
    make_tiny_policy(path, ["Begin. Waited. Well."] * 8, [WAIT_TOOL], layers=1, hidden_size=32)
    variables = {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    with ProcessProvider("_waiting:app", env_vars=variables) as servers:
        for name in given.only or SCENARIOS:
            results[name] = measured(name, SCENARIOS[name], path, servers.base_urls[0], rounds)
    record(
        "trl_loop",
        results,
        targets_in(results, os.getloadavg()[0]),
        PACKAGES,
        QUICK if given.quick or given.only else RESULTS,
    )


def measured(name: str, scenario: Scenario, path: Path, url: str, rounds: int) -> dict[str, Any]:
    """Every way in turn, round after round."""
    taken: dict[str, list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        ways: dict[str, Callable[[], Any]] = {}
        for way, make in WAYS.items():
            ways[way] = stack.enter_context(make(scenario, path, url))
            if way in ("trl", "factory_stock") and scenario.trl_rounds is not None:
                continue  # an untimed batch would take as long again
            ways[way]()
        for number in range(rounds):
            for way, batch in ways.items():
                serial = way in ("trl", "factory_stock")
                if serial and scenario.trl_rounds is not None and number >= scenario.trl_rounds:
                    continue
                began, cpu = time.perf_counter(), time.process_time()
                batch()
                figures = (time.perf_counter() - began, time.process_time() - cpu)
                taken.setdefault(way, []).append(figures)
                print(f"{name} {way} {number}: {figures[0]:.3f} s", file=sys.stderr, flush=True)
    table: dict[str, Any] = {
        way: {"seconds": spread([s for s, _ in each]), "trainer_cpu_s": spread([c for _, c in each])}
        for way, each in taken.items()
    }
    trl = statistics.median(s for s, _ in taken["trl"])
    for way in ("factory", "rollout"):
        table[way]["times_faster_than_trl"] = round(trl / table[way]["seconds"]["median"], 1)
    return table


@contextmanager
def own_loop(scenario: Scenario, path: Path, url: str) -> Iterator[Callable[[], Any]]:
    """TRL's loop over a plain class, as its documentation shows one."""
    clients: list[Any] = []

    class Waiting:
        """Waits in this process."""

        def reset(self, reset_s: float, **kwargs: Any) -> str:
            time.sleep(reset_s)
            return "\n\nBegin."

        def wait(self, seconds: float) -> str:
            """Wait.

            Args:
                seconds: How long.
            """
            time.sleep(seconds)
            return "Waited."

        def get_reward(self) -> float:
            return 1.0

    class Served(Waiting):
        """Waits on a server."""

        def __init__(self) -> None:
            self._client = GenericEnvClient(url).sync()
            clients.append(self._client)

        def reset(self, reset_s: float, **kwargs: Any) -> str:
            return "\n\n" + self._client.reset(reset_s=reset_s).observation["message"]

        def wait(self, seconds: float) -> str:
            """Wait.

            Args:
                seconds: How long.
            """
            action = {"type": "call_tool", "tool_name": "wait", "arguments": {"seconds": seconds}}
            return self._client.step(action).observation["message"]

    trainer = make_trainer(GRPOTrainer, scenario, path, environment_factory=Served if scenario.served else Waiting)
    yield batch_of(trainer, scenario)
    for client in clients:
        client.close()


@contextmanager
def factory_loop(kind: type[GRPOTrainer], scenario: Scenario, path: Path, url: str) -> Iterator[Callable[[], Any]]:
    """This package's environment_factory."""
    with make_environment_factory(url, sessions_per_server=1024) as factory:
        yield batch_of(make_trainer(kind, scenario, path, environment_factory=factory), scenario)


@contextmanager
def rollout_loop(scenario: Scenario, path: Path, url: str) -> Iterator[Callable[[], Any]]:
    """This package's rollout_func."""
    with EnvironmentRollout(url, sessions_per_server=1024) as rollout:
        trainer = make_trainer(
            GRPOTrainer, scenario, path, rollout_func=rollout, reward_funcs=[environment_reward()], prepare=rollout
        )
        yield batch_of(trainer, scenario)


WAYS: dict[str, Callable[[Scenario, Path, str], Any]] = {
    "trl": own_loop,
    "factory": lambda *given: factory_loop(EnvironmentGRPOTrainer, *given),
    "factory_stock": lambda *given: factory_loop(GRPOTrainer, *given),
    "rollout": rollout_loop,
}


def make_trainer(kind: type[GRPOTrainer], scenario: Scenario, path: Path, *, prepare: Any = None, **ways: Any) -> Any:
    """A trainer whose model writes what the scenario says."""
    rows = [{"prompt": PROMPT, "seed": 0, "reset_s": scenario.reset_s}]
    tokenizer = AutoTokenizer.from_pretrained(path)
    arguments = f'{{"seconds": {scenario.tool_s}}}'
    call = f'<tool_call>\n{{"name": "wait", "arguments": {arguments}}}\n</tool_call><|im_end|>'
    calling, saying = tokenizer.encode(call), tokenizer.encode("Well.<|im_end|>")
    [header] = tokenizer.encode("<|im_start|>assistant\n")

    class Scripted(kind):  # the loops ask for turns here; the class above it is what is measured
        pass

    def generate(self: Any, prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        turns = [ids.count(header) for ids in prompt_ids]
        return [list(calling if turn <= scenario.turns else saying) for turn in turns], None

    base = GRPOTrainer
    trainer = Scripted(
        model=str(path),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows) if prepare is None else prepare.prepare_dataset(rows),
        args=GRPOConfig(
            output_dir=str(path / "out"),
            max_steps=1,
            per_device_train_batch_size=scenario.generations,
            num_generations=scenario.generations,
            max_completion_length=512,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        **ways,
    )
    base._generate_single_turn = generate
    trainer.model.train()
    return trainer


def batch_of(trainer: Any, scenario: Scenario) -> Callable[[], Any]:
    """One batch, checked: every rollout was rewarded."""
    rows = [dict(trainer.train_dataset[0]) for _ in range(scenario.generations)]

    def batch() -> None:
        made = trainer._generate_and_score_completions(rows)
        turns = int((made["completion_ids"] == trainer._tokenizer.eos_token_id).sum(1).min())
        if len(made["advantages"]) != scenario.generations or turns <= scenario.turns:
            raise RuntimeError(f"The batch is not what it must be: {turns} messages.")

    return batch


def targets_in(results: dict[str, Any], load: float) -> list[Target]:
    """What was aimed at.

    Args:
        results: The figures.
        load: The machine's load average, of one minute, when they were taken.
    """
    targets: list[Target] = []
    for name, aim in AIMS.items():
        for way in ("factory", "rollout"):
            if name not in results:
                continue
            scenario, seconds = SCENARIOS[name], results[name][way]["seconds"]["median"]
            waits = f"{scenario.turns} x {scenario.tool_s:g} s tool" if scenario.tool_s else "0.1 s reset"
            what = f"s, {scenario.generations} generations, {waits}, {way}"
            met = seconds <= aim
            targets.append(Target(what, seconds, f"<= {aim}", "" if met else why(name, results[name][way], load)))
    return targets


def why(name: str, figures: dict[str, Any], load: float) -> str:
    """What a missed figure is made of."""
    cpus, cpu_s = os.cpu_count() or 1, figures["trainer_cpu_s"]["median"]
    text = f"the trainer's process used {cpu_s:.2f} CPU s of it, both its threads together"
    if load > cpus:
        text += f"; measured on {cpus} CPUs that others had filled (load average {load:.0f})"
    if name == "wide":
        text += "; TRL's loop reads each of 512 turns with the tokenizer's parser, one after another, and then pads"
    return text


if __name__ == "__main__":
    main()
