"""The reward by what code looks like, as the public package gives it: for comparison with runs on it, and for no more.

Source: the OpenEnv package, version 0.10.0, ``coding_env``'s transforms.
"""

from __future__ import annotations

import ast
import re

_UNSAFE = (r"import\s+os", r"import\s+subprocess", r"eval\(", r"exec\(", r"__import__", r"open\(")
_SHORT = 100


def violation(code: str) -> str | None:
    """Return the first pattern of what counts as unsafe that the code has."""
    return next((pattern for pattern in _UNSAFE if re.search(pattern, code)), None)


def reward(code: str) -> float:
    """Return -1 for code that looks unsafe, or else 0; plus 0.1 where it is short, minus 0.2 where it is no Python."""
    total = -1.0 if violation(code) else 0.0
    if len(code.strip()) <= _SHORT:
        total += 0.1
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        total -= 0.2
    return total
