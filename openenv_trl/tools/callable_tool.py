"""A Python function as a tool: its schemas, its arguments checked, and its value in the shape of a tool result.

The check is pydantic's own of a call (its words are the wire's), but built once for all functions of the same code: an
environment that defines its tools in its constructor pays for it once, not once a session.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Collection
from types import CodeType
from typing import Any, cast

from pydantic import PydanticSchemaGenerationError, TypeAdapter

from openenv_trl.types import Tool
from openenv_trl.wire.tools import CallToolResult, function_result, listed_tool

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Check = Callable[[dict[str, Any]], Arguments]

_checks: weakref.WeakKeyDictionary[CodeType, tuple[inspect.Signature, TypeAdapter[Any]]] = weakref.WeakKeyDictionary()


class CallableTool:
    """One function that an agent can call.

    Attributes:
        tool: Its name, description and the schema of its arguments.
        on_loop: Whether it is to be called on the event loop: a coroutine function is, others only where they say so.
        timeout_s: The longest that one call may take by its own account; None for no limit.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        tool: Tool,
        *,
        output_schema: dict[str, Any] | None = None,
        about: dict[str, Any] | None = None,
        timeout_s: float | None = None,
        in_thread: bool = True,
    ) -> None:
        self.function = function
        self.tool = tool
        self.on_loop = inspect.iscoroutinefunction(function) or not in_thread
        self.timeout_s = timeout_s
        self._output_schema = output_schema
        self._about = about or {}
        self._check: Check | None = None

    @classmethod
    def of(cls, function: Callable[..., Any], *, name: str | None = None) -> CallableTool:
        """Return a function as a tool, described by its signature and docstring.

        Raises:
            TypeError: A parameter's type is none that can be checked.
        """
        name = name or function.__name__
        description = inspect.cleandoc(function.__doc__ or "")
        adapter = _adapter_of(function)
        tool = Tool(name=name, description=description, input_schema=_without_titles(adapter.json_schema()))
        return cls(function, tool, output_schema=_output_schema_of(function))

    def check(self, arguments: dict[str, Any]) -> Arguments:
        """Return the arguments as the function takes them, positional and by name.

        Raises:
            ValidationError: They do not fit the signature.
        """
        check = self._check
        if check is None:
            check = self._check = cast("Check", _adapter_of(self.function).validator.validate_python)
        return check(arguments)

    def result(self, value: Any) -> CallToolResult:
        """Return what the function returned in the shape of a tool result.

        Raises:
            TypeError: The value holds something that JSON cannot express.
        """
        return function_result(value, self._output_schema)

    def listed(self) -> dict[str, Any]:
        """Return the tool's entry in ``tools/list``."""
        return listed_tool(self.tool, output_schema=self._output_schema, **self._about)


def check_of(function: Callable[..., Any], names: Collection[str]) -> Check | None:
    """Return what checks those of a function's arguments that have these names; None where it cannot be made.

    For functions that get further arguments from elsewhere.
    """
    try:
        return cast("Check", _adapter_of(function, names).validator.validate_python)
    except (NameError, TypeError, ValueError):
        return None


def _adapter_of(function: Callable[..., Any], names: Collection[str] | None = None) -> TypeAdapter[Any]:
    signature = inspect.signature(function, eval_str=True)
    if names is not None:
        signature = signature.replace(parameters=[each for each in signature.parameters.values() if each.name in names])
    code = getattr(function, "__code__", None)
    known = _checks.get(code) if code is not None else None
    if known is not None and known[0] == signature:
        return known[1]

    def captured(*args: Any, **kwargs: Any) -> Arguments:
        return args, kwargs

    stand_in: Any = captured
    stand_in.__signature__ = signature
    stand_in.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    stand_in.__name__ = stand_in.__qualname__ = getattr(function, "__name__", type(function).__name__)
    stand_in.__module__ = function.__module__
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(stand_in)
    except PydanticSchemaGenerationError as error:
        raise TypeError(f"The tool '{stand_in.__name__}' takes a type that cannot be checked: {error}") from error
    if code is not None:
        _checks[code] = (signature, adapter)
    return adapter


def _output_schema_of(function: Callable[..., Any]) -> dict[str, Any] | None:
    returned = inspect.signature(function, eval_str=True).return_annotation
    if returned in (inspect.Signature.empty, Any, None, bytes):
        return None
    try:
        schema = _without_titles(TypeAdapter(returned).json_schema(mode="serialization"))
    except Exception:  # boundary: a type that pydantic cannot describe, which may be anyone's
        return None
    if schema.get("type") == "object":
        return schema
    wrapped = {"properties": {"result": schema}, "required": ["result"], "type": "object"}
    return {**wrapped, "x-fastmcp-wrap-result": True}


def _without_titles(schema: Any, *, are_names: bool = False) -> Any:
    """Return a schema without the titles that pydantic makes of names. ``are_names``: the keys are properties'."""
    if isinstance(schema, list):
        return [_without_titles(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    items = cast("dict[str, Any]", schema).items()
    return {
        key: _without_titles(value, are_names=key in ("properties", "$defs") and not are_names)
        for key, value in items
        if are_names or key != "title" or not isinstance(value, str)
    }
