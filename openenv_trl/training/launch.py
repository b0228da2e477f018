"""How a recipe is started under accelerate."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def launch_command(
    script: Path,
    arguments: Sequence[str],
    *,
    num_processes: int = 1,
    accelerate_config: Path | None = None,
) -> list[str]:
    """The command line that runs a recipe with accelerate, in this Python.

    Args:
        script: The recipe.
        arguments: Its arguments.
        num_processes: Training processes on this machine.
        accelerate_config: A configuration file of accelerate, in place of the settings made here.
    """
    launcher = [sys.executable, "-m", "accelerate.commands.launch"]
    if accelerate_config is not None:
        launcher += ["--config_file", str(accelerate_config)]
    else:
        launcher += ["--num_processes", str(num_processes), "--num_machines", "1", "--mixed_precision", "no"]
        launcher += ["--dynamo_backend", "no", "--num_cpu_threads_per_process", "1"]
        if num_processes > 1:
            launcher += ["--multi_gpu"] if _has_gpu() else ["--cpu"]
    return [*launcher, str(script), *arguments]


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())
