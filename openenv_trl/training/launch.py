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

    Several processes without a GPU are started by torchrun, since accelerate's launcher starts them through MPI only.

    Args:
        script: The recipe.
        arguments: Its arguments.
        num_processes: Training processes on this machine.
        accelerate_config: A configuration file of accelerate, in place of the settings made here.
    """
    # Quiet: a recipe that fails has said why, and the launcher need not add its own traceback.
    accelerate = [sys.executable, "-m", "accelerate.commands.launch", "--quiet"]
    if accelerate_config is not None:
        launcher = [*accelerate, "--config_file", str(accelerate_config)]
    elif num_processes > 1 and not _has_gpu():
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        launcher = [*torchrun, "--nproc_per_node", str(num_processes)]
    else:
        plain = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
        launcher = [*accelerate, "--num_processes", str(num_processes), *plain, "--num_cpu_threads_per_process", "1"]
        if num_processes > 1:
            launcher.append("--multi_gpu")
    return [*launcher, str(script), *arguments]


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())
