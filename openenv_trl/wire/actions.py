"""Which class an action's data are of: the environment's own, or one of those that list and call tools."""

from __future__ import annotations

from typing import Any

from openenv_trl.types import Action, CallToolAction, ListToolsAction

_TOOL_ACTIONS: dict[Any, type[Action]] = {"list_tools": ListToolsAction, "call_tool": CallToolAction}
_TOOL_CLASSES = (Action, ListToolsAction, CallToolAction)


def takes_tool_actions(action_cls: type[Action]) -> bool:
    """Whether an environment of this action class is one that acts by tools, whatever else it is."""
    return action_cls in _TOOL_CLASSES


def deserialize_action(action_data: dict[str, Any], action_cls: type[Action]) -> Action:
    """Return the action in the data of a step.

    Data of type "list_tools" or "call_tool" are actions about tools, unless ``action_cls`` is a class with a field
    ``type`` of its own.

    Raises:
        ValidationError: The data do not fit.
    """
    about_tools = _TOOL_ACTIONS.get(action_data.get("type")) if isinstance(action_data.get("type"), str) else None
    if about_tools is None or (action_cls not in _TOOL_CLASSES and "type" in action_cls.model_fields):
        return action_cls.model_validate(action_data)
    return about_tools.model_validate(action_data)
