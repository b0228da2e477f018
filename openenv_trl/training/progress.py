"""What a run says while it trains: one line for some steps."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback


def disable_progress_bars() -> None:
    """Keep the bars of transformers and datasets out of a log: loading, saving, mapping."""
    import datasets
    from transformers.utils import logging

    logging.disable_progress_bar()
    datasets.disable_progress_bars()


_SHARE = "rollout/time_share/"


class RolloutProgress(TrainerCallback):
    """Prints the step, the mean reward, how episodes ended, the phase that takes most of their time, and the time left.

    Args:
        every: Steps between two lines.
    """

    def __init__(self, every: int = 10) -> None:
        self._every = every
        self._started = time.monotonic()
        self._rewards: list[float] = []
        self._told = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Starts the clock."""
        self._started = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Prints a line when it is time for one."""
        reward = (logs or {}).get("reward")
        if logs is None or reward is None or not state.is_world_process_zero:
            return
        self._rewards.append(float(reward))
        step, last = int(state.global_step), int(state.max_steps)
        # Where a batch is learned from in several steps, only some of them have a reward, and perhaps no tenth one.
        if step // self._every == self._told // self._every and step not in (1, last):
            return
        self._told = step
        recent = self._rewards[-self._every :]
        elapsed = time.monotonic() - self._started
        left = elapsed / max(step, 1) * (last - step)
        parts = [f"step {step:>4}/{last}", f"reward {sum(recent) / len(recent):+.3f}"]
        for name, label in (("rollout/failed_fraction", "failed"), ("entropy", "entropy"), ("kl", "kl")):
            value = logs.get(name)
            if value is not None:
                parts.append(f"{label} {float(value):.3f}")
        shares = {name.rpartition("/")[2]: float(logs[name]) for name in logs if name.startswith(_SHARE)}
        if any(shares.values()):
            slowest = max(shares, key=shares.__getitem__)
            parts.append(f"most time in {slowest} ({shares[slowest]:.0%})")
        parts.append(f"{elapsed / max(step, 1):.2f} s/step, {left / 60:.1f} min left")
        print("  ".join(parts), flush=True)
