"""Hidden tests that compare what a function returns, or what a program prints, with what a data set expects."""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from typing import Any


def called(function: str, inputs: Sequence[Any], outputs: Sequence[Any], starter: str = "") -> list[str]:
    """Tests that call a function with the arguments of each input.

    Tuples count as lists, since the expected values have passed through JSON. Some data sets wrap the expected value
    in a list of its own, and either is right then.

    Args:
        function: Its name.
        inputs: Each a list of arguments.
        outputs: What each call returns.
        starter: The code that the task begins with; where it has ``class Solution``, the function is a method of it.
    """
    target = f"Solution().{function}" if re.search(r"^\s*class Solution\b", starter, re.MULTILINE) else function
    # A name that Python has too is the solution's only where the test says so.
    begin = f"from solution import {target}\n" if hasattr(builtins, target) else ""
    tests: list[str] = []
    for arguments, output in zip(inputs, outputs, strict=True):
        given = ", ".join(repr(argument) for argument in arguments)
        accepted = [output, output[0]] if isinstance(output, list) and len(output) == 1 else [output]
        tests.append(
            f"{begin}got = as_data({target}({given}))\n"
            f"got = list(got) if isinstance(got, tuple) else got\nassert got in {accepted!r}\n"
        )
    return tests


def programs(inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """Tests that run the solution as a program, and compare what it prints word by word in each line.

    White space at the ends of lines, and empty lines at the end, do not count.

    Args:
        inputs: What the program reads.
        outputs: What it prints.
    """
    return [
        f"printed = [line.split() for line in run_program({text!r}).rstrip().split('\\n')]\n"
        f"assert printed == {[line.split() for line in expected.rstrip().splitlines()] or [[]]!r}\n"
        for text, expected in zip(inputs, outputs, strict=True)
    ]
