"""The process of the tests: it runs them against a solution that lives in another process.

A test is Python's own code with the solution's names in reach. What it gets from the solution is plain data, compared
here by Python's own rules, or a `Remote` that asks the solution; a `Remote` is never equal to data, nor greater.
"""

from __future__ import annotations

import ast
import builtins
import numbers
import socket
import sys
import time
import types
from collections.abc import Iterator
from typing import Any, cast

from . import frames, values
from .solution import MAX_FRAME, MODULE

_Outcome = tuple[bool, str]
_BROKEN = "the solution's process broke its protocol"


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
            unusable = failure and "run_program(" not in test
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
        in_reach = _in_reach(source, solution_names)
        module = types.ModuleType(MODULE)
        module.__dict__.update(solution_names, __all__=[each for each in in_reach if not each.startswith("_")])
        sys.modules[MODULE] = module
        names: dict[str, Any] = {"__name__": "test", **in_reach, "run_program": solution.run_program}
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


def _in_reach(source: str, names: dict[str, Any]) -> dict[str, Any]:
    """The solution's names as a test has them.

    One that Python has too means the solution's only where the test names nothing else of it, as in a task to write
    ``sum``. Otherwise an ``abs`` or ``isinstance`` of the solution's would decide what passes.
    """
    python_has = {name for name in names if hasattr(builtins, name)}
    if not python_has:
        return names
    others = (names.keys() - python_has) | {MODULE, "run_program"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id in others:
            break
        if isinstance(node, ast.ImportFrom) and node.module == MODULE and node.names[0].name != "*":
            break
    else:
        return names
    return {name: value for name, value in names.items() if name not in python_has}


class _Solution:
    """The solution's process, as its judge sees it."""

    def __init__(self, way: socket.socket, seconds: float) -> None:
        self._way = way
        self._seconds = seconds
        self._callbacks: list[Any] = []

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
        while True:
            reply = self._receive(deadline)
            if "value" in reply:
                return self._decode(reply["value"])
            if "error" in reply:
                error = _exception(reply["error"])
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
            if callable(held):
                self._callbacks.append(held)
                return [len(self._callbacks) - 1]
            raise TypeError(f"a test gave the solution a {type(held).__name__}: only data and functions travel")

        return values.encode(value, keep)

    def _decode(self, data: Any) -> Any:
        try:
            return values.decode(data, lambda held: Remote(self, held[0], held[1]))
        except (
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            AttributeError,
            ArithmeticError,
            RecursionError,
            StopIteration,
        ):
            raise SolutionLostError(_BROKEN) from None


class Remote:
    """Something of the solution's that is no data: a function, a class, an object."""

    def __init__(self, solution: _Solution, number: Any, kind: Any) -> None:
        object.__setattr__(self, "_solution", solution)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_kind", str(kind))
        object.__setattr__(self, "_apart", False)

    def __getattr__(self, name: str) -> Any:
        return _ask(self, "getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "setattr", self, name, value)

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        """Call it, in its own process."""
        return _ask(self, "call", self, *arguments, **named)

    def __iter__(self) -> Iterator[Any]:
        iterator = _ask(self, "iter", self)
        while True:
            try:
                value = _ask(self, "next", iterator)
            except StopIteration:
                return
            yield value

    def __next__(self) -> Any:
        return _ask(self, "next", self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and _ask(self, "eq", self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_number"))

    def __bool__(self) -> bool:
        return _ask(self, "bool", self) is True

    def __repr__(self) -> str:
        return str(_ask(self, "repr", self))

    def __str__(self) -> str:
        return str(_ask(self, "str", self))


def _ask(remote: Remote, question: str, /, *arguments: Any, **named: Any) -> Any:
    return object.__getattribute__(remote, "_solution").ask(question, *arguments, **named)


_DIFFERENCES = frozenset({"sub", "mod", "xor"})
_RATIOS = frozenset({"truediv", "floordiv"})


def _operation(question: str, *, reflected: bool = False) -> Any:
    def operation(self: Remote, *others: Any) -> Any:
        operands = (*others, self) if reflected else (self, *others)
        value = _ask(self, question, *operands)
        with_number = any(isinstance(other, numbers.Number) for other in others)
        apart = any(object.__getattribute__(each, "_apart") for each in operands if isinstance(each, Remote))
        apart = apart or (with_number and question in _DIFFERENCES)
        if isinstance(value, Remote):
            object.__setattr__(value, "_apart", apart or object.__getattribute__(value, "_apart"))
        elif isinstance(value, numbers.Number) and (apart or (with_number and question in _RATIOS)):
            # Or an object whose difference from everything is 0 would be close to every number.
            raise TypeError("the solution's object is no number, so it has no distance from one")
        return value

    return operation


def _comparison(question: str) -> Any:
    def comparison(self: Remote, other: Any) -> Any:
        # Only among the solution's own: an object that is greater than all must not pass for a number.
        return _ask(self, question, self, other) is True if isinstance(other, Remote) else NotImplemented

    return comparison


for _name in ("len", "abs", "int", "float", "round", "neg", "pos", "invert"):
    setattr(Remote, f"__{_name}__", _operation(_name))
for _name in ("getitem", "setitem", "delitem", "contains"):
    setattr(Remote, f"__{_name}__", _operation(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"):
    setattr(Remote, f"__{_name.rstrip('_')}__", _operation(_name))
    setattr(Remote, f"__r{_name.rstrip('_')}__", _operation(_name, reflected=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Remote, f"__{_name}__", _comparison(_name))


def _exception(told: Any) -> Exception:
    """The exception that the solution raised: one of Python's own, or a new class of its name below one."""
    parts = [str(part) for part in cast("list[Any]", told)] if isinstance(told, list) else []
    if len(parts) != 3:
        raise SolutionLostError(_BROKEN)
    name, base_name, text = parts
    base = getattr(builtins, base_name, None)
    # An AssertionError or a SystemExit of the solution's is its own, and no verdict.
    if not isinstance(base, type) or not issubclass(base, Exception):
        base = RuntimeError
    try:
        kind = base if name == base_name else type(name, (base,), {})
        return kind(text)
    except Exception:  # exceptions such as UnicodeDecodeError want other arguments
        return RuntimeError(f"{name}: {text}")
