"""The process of a solution that is judged: it imports the solution, and is asked for values of it.

The tests are in another process. Whatever the solution does to this one, it sees the arguments of the calls that
are made to it, and nothing of what its answers are compared with.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import operator
import os
import runpy
import socket
import sys
from collections.abc import Callable
from typing import Any

from . import frames, values
from .console import Console
from .reach import MODULE

MAX_FRAME = 1 << 24
"""Bytes of one value that travels between solution and judge."""


def serve(way: socket.socket, files: dict[str, str], console: Console) -> None:
    """Import ``solution.py`` and answer the judge until it is gone.

    Args:
        way: To the judge.
        files: The solution's modules by their paths.
        console: This process's.
    """
    del console
    for path, text in files.items():
        folder = os.path.dirname(path)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
    _Server(way).run()


class _Server:
    def __init__(self, way: socket.socket) -> None:
        self._way = way
        self._objects: dict[int, Any] = {}

    def run(self) -> None:
        while (message := frames.receive(self._way, MAX_FRAME)) is not None:
            self._send(self._reply(message))

    def _reply(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._called(message) if message["ask"] == "call" else {"value": self._encode(self._do(message))}
        except BaseException as error:  # boundary: a solution may raise anything
            if not _is_pythons(type(error)):
                self._objects[id(error)] = error.with_traceback(None)  # whose frames hold all that there was
            return {"error": [self._kind(type(error)), _text(error), id(error)]}

    def _called(self, message: dict[str, Any]) -> dict[str, Any]:
        """Call something; where it returns nothing, tell what has become of the lists, dicts and sets it was given."""
        function, *arguments = [self._decode(argument) for argument in message["arguments"]]
        named = {name: self._decode(value) for name, value in message["named"].items()}
        given = values.containers([*arguments, *named.values()])
        before = [values.copied(container) for container in given]
        value = function(*arguments, **named)
        reply = {"value": self._encode(value)}
        if value is None and given:
            known = {id(container): place for place, container in enumerate(given)}
            reply["changed"] = [
                [place, values.encode(values.copied(container), self._keep, known)]
                for place, container in enumerate(given)
                if not values.is_unchanged(container, before[place])
            ]
        return reply

    def _do(self, message: dict[str, Any]) -> Any:
        question = message["ask"]
        arguments = [self._decode(argument) for argument in message.get("arguments", [])]
        if question == "import":
            module = importlib.import_module(MODULE)
            return {name: value for name, value in vars(module).items() if not name.startswith("__")}
        if question == "program":
            return self._program(arguments[0])
        function: Callable[..., Any] = getattr(operator, question, None) or getattr(builtins, question)
        return function(*arguments)

    def _program(self, text: str) -> str:
        """Run the solution as a program, with a text as its standard input, also to who reads and writes bytes."""
        out = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
        standard_input = io.TextIOWrapper(io.BytesIO(), "utf-8")
        standard_input.write(text)
        standard_input.seek(0)
        before = sys.stdin
        sys.stdin = standard_input
        try:
            with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
                runpy.run_path(f"{MODULE}.py", run_name="__main__")
        finally:
            sys.stdin = before
        out.flush()
        return out.buffer.getvalue().decode("utf-8", "replace")

    def _encode(self, value: Any) -> Any:
        return values.encode(value, self._keep)

    def _keep(self, held: Any) -> Any:
        self._objects[id(held)] = held
        told = [id(held), type(held).__name__]
        if isinstance(held, type) and issubclass(held, BaseException) and not _is_pythons(held):
            told.append(self._kind(held))
        return told

    def _kind(self, kind: type[BaseException]) -> Any:
        """A class of exceptions: its number, its name, those above it that are the solution's, Python's nearest."""
        if _is_pythons(kind):
            return kind.__name__
        self._objects[id(kind)] = kind
        own = [self._kind(base) for base in kind.__bases__ if issubclass(base, BaseException) and not _is_pythons(base)]
        return [id(kind), kind.__name__, own, next(each.__name__ for each in kind.__mro__ if _is_pythons(each))]

    def _decode(self, data: Any) -> Any:
        def find(number: Any) -> Any:
            return self._objects[number] if isinstance(number, int) else self._callback(number[0])

        return values.decode(data, find)

    def _callback(self, number: int) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._send({"callback": number, "arguments": [self._encode(argument) for argument in arguments]})
            while True:
                message = frames.receive(self._way, MAX_FRAME)
                if message is None:
                    os._exit(0)
                if "returned" in message:
                    return self._decode(message["returned"])
                if "raised" in message:
                    raise getattr(builtins, message["raised"][0], RuntimeError)(message["raised"][1])
                self._send(self._reply(message))

        return call

    def _send(self, message: dict[str, Any]) -> None:
        self._way.sendall(frames.pack(message))


def _is_pythons(kind: type) -> bool:
    return getattr(builtins, kind.__name__, None) is kind


def _text(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except BaseException:
        return ""
