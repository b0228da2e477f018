"""What the page is told of an environment before anybody plays it. No environment is built for it here.

What only an environment itself can tell (the tools of an `MCPEnvironment`, say) comes with a visitor's session.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from openenv_trl.environment import Environment
from openenv_trl.server.hooks import AnyEnvironment, class_behind
from openenv_trl.types import Action, CallToolAction, ListToolsAction, Tool

_README = "README.md"
_MOST_README_BYTES = 1024 * 1024
_FOLDERS_UP = 4  # from an environment's module to its package's folder
_OF_ALL_RESETS: dict[str, Any] = {"seed": int | None, "episode_id": str | None}  # where a signature has no types
_IN_CONTAINERS = (Path("/app/env") / _README, Path("/app") / _README)


def action_schema(action_cls: type[Action]) -> dict[str, Any] | None:
    """Return the JSON Schema that the form of a typed action is made of; None where the agent acts by tools alone."""
    if action_cls in (Action, CallToolAction, ListToolsAction):
        return None
    schema = action_cls.model_json_schema()
    if not any("metadata" in vars(each).get("__annotations__", {}) for each in _own_classes(action_cls)):
        schema.get("properties", {}).pop("metadata", None)  # every action has it, and none is played by it
    return schema


def reset_schema(factory: Callable[[], Any]) -> dict[str, Any]:
    """Return the JSON Schema of an environment's reset arguments, as far as its signature tells them."""
    known = class_behind(factory)
    hook: Callable[..., Any] = AnyEnvironment.reset
    if known is not None:
        hook = known.reset_async if known.reset_async is not AnyEnvironment.reset_async else known.reset
    try:
        signature = inspect.signature(hook, eval_str=True)
    except Exception:  # boundary: annotations are the environment author's code
        signature = inspect.signature(hook)
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    required: list[str] = []
    takes_more = False
    for parameter in list(signature.parameters.values())[1:]:
        takes_more = takes_more or parameter.kind is parameter.VAR_KEYWORD
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            continue
        properties[parameter.name] = _schema_of(parameter, definitions)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": takes_more}
    return {**schema, "$defs": definitions} if definitions else schema


def known_tools(factory: Callable[[], Any]) -> list[Tool] | None:
    """Return the tools that every environment of the factory has; None where only an environment itself can tell."""
    known = class_behind(factory)
    if known is None or known.offered_tools is not AnyEnvironment.offered_tools:
        return None
    return known.list_tools()


def readme_of(factory: Callable[[], Any]) -> str | None:
    """Return the README of the environment's package, without the front matter of a Space; None where there is none.

    It is the file that ENV_README_PATH names, or the one beside the package's ``openenv.yaml``, or that of the image.
    """
    for path in _readme_paths(factory):
        try:
            if path.is_file() and path.stat().st_size <= _MOST_README_BYTES:
                return _without_front_matter(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
    return None


def _own_classes(action_cls: type[Action]) -> list[type[Any]]:
    """The class and its bases, as far as they are an environment's own."""
    return [each for each in action_cls.__mro__ if issubclass(each, Action) and each is not Action]


def _schema_of(parameter: inspect.Parameter, definitions: dict[str, Any]) -> dict[str, Any]:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        annotation = _OF_ALL_RESETS.get(parameter.name, Any)
    try:
        adapter = TypeAdapter(annotation)
        schema: dict[str, Any] = adapter.json_schema()
        if parameter.default is not parameter.empty:
            schema["default"] = adapter.dump_python(parameter.default, mode="json", warnings=False)
    except Exception:  # boundary: types, and what they are made of, are the environment author's code
        return {"title": parameter.name, "description": "Of a type that has no JSON Schema: give it as JSON."}
    definitions.update(schema.pop("$defs", {}))
    return schema


def _readme_paths(factory: Callable[[], Any]) -> list[Path]:
    named = os.environ.get("ENV_README_PATH")
    beside = (folder / _README for source in _sources(factory) for folder in _packages_folder(source))
    return [*([Path(named)] if named else []), *beside, *_IN_CONTAINERS]


def _sources(factory: Callable[[], Any]) -> list[Path]:
    """The files that the environment's code is in: its class and, where that is made up, those that it is made of."""
    known = class_behind(factory)
    made_of: list[Any] = [factory] if known is None else list(known.__mro__[: known.__mro__.index(Environment)])
    modules = [sys.modules.get(getattr(each, "__module__", None) or "") for each in made_of]
    files = [getattr(module, "__file__", None) for module in modules]
    return [Path(file).resolve() for file in files if file]


def _packages_folder(source: Path) -> list[Path]:
    return [folder for folder in list(source.parents)[:_FOLDERS_UP] if (folder / "openenv.yaml").is_file()][:1]


def _without_front_matter(text: str) -> str:
    if not text.startswith("---\n"):
        return text
    _, end, rest = text[4:].partition("\n---\n")
    return rest.lstrip("\n") if end else text
