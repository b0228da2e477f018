"""What a test has in place of the solution's objects: it asks the solution, and decides nothing by itself.

A `Remote` is never equal to data, nor greater. The solution learns what its object is added to, subtracted from or
looked for in, so that no answer to that counts: ``in`` goes over the object and compares on this side, and what an
operator makes of the object and of data is never data.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# What a solution gives is of any type at all.
from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any, Protocol, cast


class Asked(Protocol):
    """The solution's process."""

    def ask(self, question: str, /, *arguments: Any, **named: Any) -> Any:
        """Ask it for the outcome of an operation; raises what that raised there."""
        ...


class Remote:
    """Something of the solution's that is no data: a function, a class, an object."""

    def __init__(self, solution: Asked, number: Any, kind: Any) -> None:
        object.__setattr__(self, "_solution", solution)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_kind", str(kind))
        object.__setattr__(self, "_apart", False)
        object.__setattr__(self, "_told", False)

    def __getattr__(self, name: str) -> Any:
        return _ask(self, "getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "setattr", self, name, value)

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        """Call it, in its own process."""
        return _ask(self, "call", self, *arguments, **named)

    def __iter__(self) -> Iterator[Any]:
        _refuse_apart(self)
        iterator = _ask(self, "iter", self)
        while True:
            try:
                value = _ask(self, "next", iterator)
            except StopIteration:
                return
            yield value

    def __next__(self) -> Any:
        return _ask(self, "next", self)

    def __contains__(self, item: object) -> bool:
        if _is(self, "_told") or isinstance(item, Remote):
            return _ask(self, "contains", self, item) is True
        try:
            return any(value is item or value == item for value in self)
        except TypeError as error:
            raise TypeError(f"`in` goes over the solution's object: {error}. See as_told") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and _ask(self, "eq", self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_number"))

    def __bool__(self) -> bool:
        _refuse_apart(self)
        return _ask(self, "bool", self) is True

    def __repr__(self) -> str:
        return str(_ask(self, "repr", self))

    def __str__(self) -> str:
        _refuse_apart(self)
        return str(_ask(self, "str", self))

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Remote) and _ask(self, "isinstance", instance, self) is True

    def __subclasscheck__(self, subclass: object) -> bool:
        return isinstance(subclass, Remote) and _ask(self, "issubclass", subclass, self) is True

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        raise TypeError("a test cannot derive a class from one of the solution's, which is in another process")


def as_data(value: Any) -> Any:
    """Return a value that is data through and through.

    Raises:
        TypeError: It is an object of the solution's, or holds one: what its methods say proves nothing.
    """
    if isinstance(value, Remote):
        raise TypeError(f"the solution gave a {object.__getattribute__(value, '_kind')}, which is no data")
    if isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            as_data(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            as_data(key)
            as_data(item)
    return value


def as_told(value: Any) -> Any:
    """Return an object whose own operators and ``__contains__`` count, where the task is to write these."""
    if not isinstance(value, Remote):
        return value
    told = Remote(*(object.__getattribute__(value, name) for name in ("_solution", "_number", "_kind")))
    object.__setattr__(told, "_told", True)
    return told


def _ask(remote: Remote, question: str, /, *arguments: Any, **named: Any) -> Any:
    return object.__getattribute__(remote, "_solution").ask(question, *arguments, **named)


def _is(value: Any, mark: str) -> bool:
    return isinstance(value, Remote) and object.__getattribute__(value, mark)


def _refuse_apart(*values: Any) -> None:
    if any(_is(value, "_apart") for value in values):
        raise TypeError("what the solution's object makes of data decides nothing. Compare data, or see as_told")


# What is left of one of these where both are alike is empty, zero or false, which a solution can say unseen.
_DIFFERENCES = frozenset({"sub", "mod", "xor", "and_", "or_"})
_WITH_ANOTHER = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor")


def _operation(question: str, *, reflected: bool = False) -> Any:
    def operation(self: Remote, *others: Any) -> Any:
        operands = (*others, self) if reflected else (self, *others)
        value = _ask(self, question, *operands)
        if any(_is(each, "_told") for each in operands):
            return value
        apart = any(_is(each, "_apart") for each in operands)
        with_data = question in _WITH_ANOTHER and not all(isinstance(other, Remote) for other in others)
        if isinstance(value, Remote):
            # Or an object whose difference from everything is nothing would be close to everything.
            apart = apart or (with_data and question in _DIFFERENCES)
            object.__setattr__(value, "_apart", apart or object.__getattribute__(value, "_apart"))
        elif apart or with_data:
            raise TypeError(
                "the solution's object is no data: what an operator makes of it and data decides nothing. See as_told"
            )
        return value

    return operation


def _comparison(question: str) -> Any:
    def comparison(self: Remote, other: Any) -> Any:
        # Only among the solution's own: an object that is greater than all must not pass for a number.
        return _ask(self, question, self, other) is True if isinstance(other, Remote) else NotImplemented

    return comparison


for _name in ("len", "abs", "int", "float", "round", "neg", "pos", "invert", "getitem", "setitem", "delitem"):
    setattr(Remote, f"__{_name}__", _operation(_name))
for _name in _WITH_ANOTHER:
    setattr(Remote, f"__{_name.rstrip('_')}__", _operation(_name))
    setattr(Remote, f"__r{_name.rstrip('_')}__", _operation(_name, reflected=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Remote, f"__{_name}__", _comparison(_name))


class Exceptions:
    """Classes on this side for those exceptions that the solution defines, so that a test can catch them by name."""

    def __init__(self) -> None:
        self._kinds: dict[Any, type[Exception]] = {}

    def kind(self, told: Any) -> type[Exception]:
        """Return the class: number, name, the solution's classes that it is below, Python's own that it is below.

        Raises:
            ValueError: It is told in no such way.
        """
        number, name, parents, base_name = cast("list[Any]", told)
        if number not in self._kinds:
            base = getattr(builtins, str(base_name), None)
            # An AssertionError or a SystemExit of the solution's is its own, and no verdict.
            if not isinstance(base, type) or not issubclass(base, Exception):
                base = RuntimeError
            bases = (*dict.fromkeys(self.kind(parent) for parent in parents), base)
            try:
                kind = type(str(name), bases, {"__getattr__": _of_the_raised})
            except TypeError:  # no order of the classes, or their instances differ in form
                kind = type(str(name), (base,), {"__getattr__": _of_the_raised})
            self._kinds[number] = kind
        return self._kinds[number]

    def number(self, kind: Any) -> Any:
        """The number of a class that `kind` made; None for anything else."""
        return next((number for number, each in self._kinds.items() if each is kind), None)

    def raised(self, told: Any, text: Any, remote: Remote) -> Exception:
        """Return the exception that the solution raised.

        Args:
            told: As `kind` takes it; a class of Python's own is told by its name alone.
            text: What it says.
            remote: The exception itself, which is asked for its attributes.

        Raises:
            ValueError: It is told in no such way.
        """
        if isinstance(told, str):
            own = getattr(builtins, told, None)
            kind = own if isinstance(own, type) and issubclass(own, Exception) else RuntimeError
        else:
            kind = self.kind(told)
        try:
            error = kind(str(text))
        except Exception:  # exceptions such as UnicodeDecodeError want other arguments
            return RuntimeError(f"{kind.__name__}: {text}")
        if not isinstance(told, str):
            error.__dict__["_remote"] = remote
        return error


def _of_the_raised(self: Exception, name: str) -> Any:
    if "_remote" not in self.__dict__ or name.startswith("__"):
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r} here")
    return getattr(self.__dict__["_remote"], name)
