"""The process of the tests: it runs them against a solution that lives in another process.

A test is Python's own code with the solution's names in reach. What it gets from the solution is plain data, compared
here by Python's own rules, or a `Remote` that asks the solution and decides nothing.
"""

from __future__ import annotations

import socket
import sys
import time
import types
from typing import Any, cast

from . import frames, values
from .reach import MODULE, RUN_PROGRAM, in_reach
from .remote import Exceptions, Remote, as_data, as_told
from .solution import MAX_FRAME

_Outcome = tuple[bool, str]
_BROKEN = "the solution's process broke its protocol"
# What comes of a value that no honest process sends.
_MADE_UP = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError, StopIteration),
)


class SolutionLostError(BaseException):
    """The solution's process has ended, broke the protocol or did not answer in time."""


def judge(server: socket.socket, way: socket.socket, message: dict[str, Any]) -> None:
    """Run tests and tell the server of each.

    Args:
        server: Where the verdicts go.
        way: To the solution.
        message: ``tests``: their sources; ``first``: the number of the first of them; ``seconds``: how long the
            solution may take over each; ``token``: what verdicts are signed with.
    """
    solution = _Solution(way, message["seconds"])
    names: dict[str, Any] = {}
    failure = ""
    try:
        names = solution.import_it()
    except SolutionLostError as lost:
        failure = str(lost)
    except Exception as error:
        failure = f"importing the solution raised {type(error).__name__}: {error}"
    for number, test in enumerate(message["tests"], message["first"]):
        try:
            # A program reads its input as it begins: that it cannot be imported without one says nothing of it.
            unusable = failure and f"{RUN_PROGRAM}(" not in test
            passed, why = (False, failure) if unusable else _run(test, f"<test {number}>", names, solution)
            lost = False
        except SolutionLostError as error:
            passed, why, lost = False, str(error), True
        verdict = {"token": message["token"], "number": number, "passed": passed, "why": why[:500], "lost": lost}
        server.sendall(frames.pack(verdict))
        if lost:
            return


def _run(source: str, name: str, solution_names: dict[str, Any], solution: _Solution) -> _Outcome:
    try:
        own = {RUN_PROGRAM: solution.run_program, "as_data": as_data, "as_told": as_told}
        found = in_reach(source, solution_names)
        module = types.ModuleType(MODULE)
        shown = [name for name in found if name in solution_names and not name.startswith("_")]
        module.__dict__.update(solution_names, __all__=shown)
        sys.modules[MODULE] = module
        names: dict[str, Any] = {"__name__": "test", **found, **own}
        before = dict(names)
        exec(compile(source, name, "exec"), names)
        # By what they are, not by name: a solution may have names like those of tests.
        functions = [
            value
            for key, value in list(names.items())
            if key.startswith("test_") and callable(value) and value is not before.get(key)
        ]
        for function in functions:
            function()
    except SolutionLostError:
        raise
    except AssertionError as error:
        return False, f"AssertionError: {error}"
    except BaseException as error:  # boundary: a test may raise anything
        return False, f"{type(error).__name__}: {error}"
    return True, ""


class _Solution:
    """The solution's process, as its judge sees it."""

    def __init__(self, way: socket.socket, seconds: float) -> None:
        self._way = way
        self._seconds = seconds
        self._callbacks: list[Any] = []
        self._exceptions = Exceptions()

    def import_it(self) -> dict[str, Any]:
        names = self.ask("import")
        if not isinstance(names, dict):
            raise SolutionLostError(_BROKEN)
        told = {str(name): value for name, value in cast("dict[Any, Any]", names).items()}
        # Such as __builtins__, which a test would be run with.
        return {name: value for name, value in told.items() if not name.startswith("__")}

    def run_program(self, text: str = "") -> str:
        """Run the solution as a program; returns what it printed."""
        return self.ask("program", text)

    def ask(self, question: str, /, *arguments: Any, **named: Any) -> Any:
        """Ask the solution's process for the outcome of an operation; raises what that raised there."""
        deadline = time.monotonic() + self._seconds
        encoded = {name: self._encode(value) for name, value in named.items()}
        self._send({"ask": question, "arguments": [self._encode(value) for value in arguments], "named": encoded})
        given = values.containers([*arguments, *named.values()]) if question == "call" else []
        while True:
            reply = self._receive(deadline)
            if "value" in reply:
                value = self._decode(reply["value"])
                if value is None and reply.get("changed"):
                    self._change(given, reply["changed"])
                return value
            if "error" in reply:
                error = self._exception(reply["error"])
                if isinstance(error, StopIteration) and question != "next":
                    # As out of a generator: it must not end a map() of the test's early.
                    error = RuntimeError("the solution raised StopIteration")
                raise error
            if not isinstance(reply.get("callback"), int):
                raise SolutionLostError(_BROKEN)
            self._send(self._called_back(reply))

    def _called_back(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            function = self._callbacks[request["callback"]]
            return {"returned": self._encode(function(*[self._decode(each) for each in request["arguments"]]))}
        except Exception as error:
            return {"raised": [type(error).__name__, str(error)]}

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._way.settimeout(self._seconds)
            self._way.sendall(frames.pack(message))
        except TimeoutError:
            raise SolutionLostError("the solution took too long") from None
        except OSError:
            raise SolutionLostError("the solution's process has ended") from None

    def _receive(self, deadline: float) -> dict[str, Any]:
        try:
            reply = frames.receive(self._way, MAX_FRAME, deadline)
        except TimeoutError:
            raise SolutionLostError("the solution took too long") from None
        except frames.BrokenFrameError:
            raise SolutionLostError(_BROKEN) from None
        except OSError:
            reply = None
        if reply is None:
            raise SolutionLostError("the solution's process has ended")
        return reply

    def _encode(self, value: Any) -> Any:
        def keep(held: Any) -> Any:
            if isinstance(held, Remote):
                return object.__getattribute__(held, "_number")
            number = self._exceptions.number(held)
            if number is not None:
                return number
            if callable(held):
                self._callbacks.append(held)
                return [len(self._callbacks) - 1]
            raise TypeError(f"a test gave the solution a {type(held).__name__}: only data and functions travel")

        return values.encode(value, keep)

    def _decode(self, data: Any, given: list[Any] | None = None) -> Any:
        try:
            return values.decode(data, self._stand_in, given or [])
        except _MADE_UP:
            raise SolutionLostError(_BROKEN) from None

    def _stand_in(self, held: Any) -> Any:
        number, kind, *exception = cast("list[Any]", held)
        return self._exceptions.kind(exception[0]) if exception else Remote(self, number, kind)

    def _change(self, given: list[Any], told: Any) -> None:
        """Give a test's lists, dicts and sets what a call that returned nothing has made of them, as it expects."""
        try:
            changed = [(given[place], self._decode(content, given)) for place, content in told]
            for container, content in changed:
                values.replace(container, content)
        except _MADE_UP:
            raise SolutionLostError(_BROKEN) from None

    def _exception(self, told: Any) -> Exception:
        try:
            kind, text, number = cast("list[Any]", told)
            return self._exceptions.raised(kind, text, Remote(self, number, "exception"))
        except _MADE_UP:
            raise SolutionLostError(_BROKEN) from None
