"""How a solution is judged: its code runs in one process, the hidden tests in another, both fresh and both sandboxed.

The solution's process gets the arguments of calls and never the tests; the tests' process gets data and never code of
the solution's; the verdicts come from the latter, over a channel that the former has no end of. Where a solution ends
its process or does not answer, the test at hand has failed, and the rest are run with a new process.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import anyio

from coding_env.sandbox.inside.bundle import unbundled
from coding_env.sandbox.inside.files import MAX_LISTED
from coding_env.sandbox.launcher import Sandbox
from coding_env.sandbox.session import Reply, SandboxSession

_MAX_NEW_STARTS = 8  # a solution that hangs in more tests than that fails the rest


@dataclass
class Verdict:
    """What the hidden tests say.

    Attributes:
        outcomes: For each test in its order, why it failed; "" where it passed.
        seconds: How long it took.
    """

    outcomes: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    @property
    def passed(self) -> int:
        """Tests that passed."""
        return sum(not why for why in self.outcomes)

    @property
    def share(self) -> float:
        """Share of the tests that passed."""
        return self.passed / len(self.outcomes) if self.outcomes else 0.0


async def grade(
    sandbox: Sandbox, files: dict[str, str], tests: list[str], *, timeout_s: float, test_timeout_s: float
) -> Verdict:
    """Judge a solution.

    Args:
        sandbox: Where the two processes come from.
        files: The solution's modules by their paths; ``solution.py`` among them.
        tests: The tests' sources.
        timeout_s: Seconds for all of them together; those that it does not reach have failed.
        test_timeout_s: Seconds that the solution may take over each call.
    """
    started = time.monotonic()
    verdict = Verdict()
    for _ in range(_MAX_NEW_STARTS):
        left = timeout_s - (time.monotonic() - started)
        if len(verdict.outcomes) == len(tests) or left <= 0:
            break
        await _judge_rest(sandbox, files, tests, verdict, left, test_timeout_s)
    missing = len(tests) - len(verdict.outcomes)
    verdict.outcomes += ["the time for the tests was up, or the solution ended too often"] * missing
    verdict.seconds = time.monotonic() - started
    return verdict


async def _judge_rest(
    sandbox: Sandbox,
    files: dict[str, str],
    tests: list[str],
    verdict: Verdict,
    timeout_s: float,
    test_timeout_s: float,
) -> None:
    """Run the tests that have no outcome yet, until the solution's process is lost. Settles one at least."""
    first, token = len(verdict.outcomes), secrets.token_hex(16)
    request = {"op": "judge", "tests": tests[first:], "first": first, "seconds": test_timeout_s, "token": token}
    for_solution, for_judge = socket.socketpair()
    # Each session closes the end that it hands on, so that the judge sees the end of the other process.
    with for_solution, for_judge:
        async with _session(sandbox) as solution, _session(sandbox) as judge, anyio.create_task_group() as group:
            serving = {"op": "solution", "files": files}
            group.start_soon(lambda: solution.request(serving, timeout_s, interruptible=False, peer=for_solution))
            reply = await judge.request(request, timeout_s, interruptible=False, messages=len(tests), peer=for_judge)
            _settle(verdict, reply, len(tests), token)
            group.cancel_scope.cancel()


def _settle(verdict: Verdict, reply: Reply, total: int, token: str) -> None:
    for message in reply.others:
        if message.get("token") == token and message.get("number") == len(verdict.outcomes) < total:
            why = str(message.get("why") or "failed")
            verdict.outcomes.append("" if message.get("passed") is True else why)
    if reply.failure and len(verdict.outcomes) < total:
        verdict.outcomes.append(f"the test was ended: {reply.failure}")


@contextlib.asynccontextmanager
async def _session(sandbox: Sandbox) -> AsyncGenerator[SandboxSession]:
    session = sandbox.take()
    try:
        yield session
    finally:
        session.close()


def solution_files(exported: Any, cells: list[str], code: str | None) -> dict[str, str]:
    """Return what is judged: the code given, or else the workspace's ``solution.py``, or else the cells that ran.

    Args:
        exported: The workspace's modules, as its worker tells; any of it may be made up.
        cells: The cells of the episode that ran without an error.
        code: The code given.
    """
    files = {path: text.decode("utf-8", "replace") for path, text in unbundled(exported, MAX_LISTED)}
    if code is not None:
        files["solution.py"] = code
    elif "solution.py" not in files:
        files["solution.py"] = "\n\n".join(cells)
    return files
