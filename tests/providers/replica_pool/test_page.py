"""The page on pools names what there is."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

from openenv_trl.providers.replica_pool import PoolSettings, ReplicaPoolMetrics

PAGE = (Path(__file__).parents[3] / "docs" / "pool.md").read_text()


def test_each_setting_is_on_the_page_and_the_yaml_is_read():
    missing = [name for name in PoolSettings.model_fields if f"`{name}`" not in PAGE]
    assert missing == []
    (block,) = re.findall(r"^pool:\n((?:  .*\n)+)", PAGE, re.MULTILINE)
    assert PoolSettings(**dict(line.strip().split(": ") for line in block.splitlines())).max_replicas == 8


def test_each_metric_on_the_page_is_there():
    named = set(re.findall(r"`pool/([a-z_0-9]+)`", PAGE))
    assert named
    assert named <= {field.name for field in dataclasses.fields(ReplicaPoolMetrics)}


def test_the_first_example_runs_as_it_stands_but_for_docker() -> None:
    program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    echo = Path(__file__).parents[3] / "environments" / "echo_env"
    servers = {"type": "process", "environment": str(echo)}
    lines = [f"SERVERS = {servers!r}" if line.startswith("SERVERS =") else line for line in program.splitlines()]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {line for line in done.stdout.splitlines() if line.startswith("hello")} == {f"hello {n}" for n in range(40)}
    assert "'pool/starts'" in done.stdout
