"""What the README shows is what happens: its example, its settings, its arguments and its layers."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

from coding_env.sandbox.inside import confine
from coding_env.sandbox.limits import Limits
from coding_env.server import settings
from coding_env.server.coding_environment import CodingEnvironment
from coding_env.server.grading import concurrent_gradings
from coding_env.server.settings import SandboxSettings, settings_from_variables

from openenv_trl.providers.docker.spec import SANDBOX_DEFAULTS

PACKAGE = Path(__file__).resolve().parents[1]
README = (PACKAGE / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return README.partition(f"## {title}\n")[2].partition("\n## ")[0]


def names_of_rows(text: str) -> set[str]:
    """What stands in backticks in the first column of a section's table."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_example_goes_as_shown() -> None:
    code, shown = re.findall(r"```(?:python|text)\n(.*?)```", section("A played example"), re.DOTALL)
    run = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parents[1], capture_output=True, text=True)
    assert run.stdout == shown, run.stderr


def test_the_settings_are_those_in_the_table() -> None:
    tables = (
        settings._EPISODE_VARIABLES,
        settings._LIMIT_VARIABLES,
        settings._SANDBOX_VARIABLES,
        settings._LIST_VARIABLES,
    )  # pyright: ignore[reportPrivateUsage]
    known = {name for table in tables for name in table}
    assert names_of_rows(section("Settings of a server")) - {"MAX_CONCURRENT_ENVS"} == known


def test_the_defaults_are_those_in_the_table() -> None:
    rows = re.findall(r"^\| `(CODING_\w+)` \| (\S+) \|", section("Settings of a server"), re.MULTILINE)
    numbers = {name: value for name, value in rows if value.isdigit()}
    episode, sandbox = settings_from_variables(numbers)
    assert len(numbers) > 10
    assert (episode, sandbox) == settings_from_variables({})
    assert sandbox.limits == Limits()


def test_the_arguments_are_those_in_the_table() -> None:
    parameters = set(inspect.signature(CodingEnvironment.reset_async).parameters) - {"self", "kwargs"}
    assert names_of_rows(section("Arguments of reset")) == parameters


def test_the_layers_are_those_in_the_table() -> None:
    table = section("What the sandbox is").partition("| layer |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| (\w+) \|", table, re.MULTILINE)) == {*confine.LAYERS, "bubblewrap", "always"}


def test_the_processes_that_a_container_may_have_are_enough_for_the_images_sessions_by_the_rule() -> None:
    rule = re.search(r"^ {4}(\(MAX_CONCURRENT_ENVS .*)$", section("Docker"), re.MULTILINE)
    image = re.search(r"MAX_CONCURRENT_ENVS=(\d+)", (PACKAGE / "server" / "Dockerfile").read_text())
    shown = re.search(r"--pids-limit (\d+)", section("Docker"))
    assert rule
    assert image
    assert shown
    values = {
        "MAX_CONCURRENT_ENVS": int(image[1]),
        "CODING_CONCURRENT_GRADINGS": concurrent_gradings(),
        "CODING_WARM_SESSIONS": SandboxSettings().warm_sessions,
        "CODING_PROCESSES": Limits().processes,
    }
    needed = eval(rule[1], {}, values)
    assert f"{needed} for the image's" in section("Docker")
    assert needed <= int(shown[1]) == SANDBOX_DEFAULTS["pids"]
