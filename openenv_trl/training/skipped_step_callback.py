"""A step that was skipped changes no weight."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback


class SkippedStepCallback(TrainerCallback):
    """Keeps the optimizer from moving anything in a step that was skipped.

    The loss of such a step is zero and so is its gradient, but the optimizer's momentum and weight decay would move
    the weights all the same. Without gradients it leaves them.
    """

    def __init__(self) -> None:
        self.skipping = False
        """Whether the batch at hand is skipped."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Drops the gradients of a skipped step.

        With ``fp16`` they stay: its gradient scaler does not take a step without any. A step that gathers several
        batches, one of them sound, has gradients that are not zero, and is taken.
        """
        model = kwargs.get("model")
        if not self.skipping or model is None or getattr(args, "fp16", False):
            return
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if any(bool(gradient.any()) for gradient in gradients):
            return
        for parameter in model.parameters():
            parameter.grad = None
