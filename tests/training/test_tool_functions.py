"""Tools become functions that transformers renders as the server's own schema says."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils import get_json_schema
from transformers.utils.chat_template_utils import render_jinja_template

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.tool_schema import tool_definition
from openenv_trl.training.action_tools import ActionTools
from openenv_trl.training.tool_functions import ToolDefinition, attribute_name, renders_exactly, tool_function
from openenv_trl.types import Tool


def tool_of(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> Tool:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema |= {"required": required} if required else {}
    return Tool(name="move", description="Make a move.", input_schema={**schema, **more})


def bound(tool: Tool, heard: list[Any] | None = None) -> Any:
    def call(instance: Any, name: str, arguments: dict[str, Any]) -> str:
        (heard if heard is not None else []).append((name, arguments))
        return "ok"

    return type("Thing", (), {"method": tool_function(tool, call)})().method


SAID = {"description": "What."}

EXACT = {
    "integer": {"a": {"type": "integer", **SAID}},
    "number": {"a": {"type": "number", **SAID}},
    "boolean": {"a": {"type": "boolean", **SAID}},
    "string": {"a": {"type": "string", **SAID}},
    "enum": {"a": {"type": "string", "enum": ["hit", "stand"], **SAID}},
    "array": {"a": {"type": "array", "items": {"type": "integer"}, **SAID}},
    "array of arrays": {"a": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}, **SAID}},
    "object": {"a": {"type": "object", **SAID}},
    "object of numbers": {"a": {"type": "object", "additionalProperties": {"type": "number"}, **SAID}},
    "several types": {"a": {"type": ["integer", "string"], **SAID}},
}


@pytest.mark.parametrize("properties", EXACT.values(), ids=EXACT)
def test_what_hints_can_say_is_rendered_from_the_function_alone(properties: dict[str, Any]) -> None:
    for required in (["a"], []):
        tool = tool_of(properties, required)
        assert get_json_schema(bound(tool)) == tool_definition(tool)
        assert renders_exactly(tool, bound(tool))


BEYOND = {
    "nested object": {
        "a": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "description": "Where."}
    },
    "optional with default": {"a": {"type": "integer", "default": 3, **SAID}},
    "bounds": {"a": {"type": "integer", "minimum": 1, "maximum": 9, **SAID}},
    "no description": {"a": {"type": "integer"}},
    "nullable": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, **SAID}},
    "reference": {"a": {"$ref": "#/$defs/Place", **SAID}},
    "odd name": {"my-class": {"type": "integer", **SAID}, "from": {"type": "string", **SAID}},
    "headings in texts": {"a": {"type": "string", "description": "It.\nReturns:\n  nothing"}},
}


@pytest.mark.parametrize("properties", BEYOND.values(), ids=BEYOND)
def test_what_they_cannot_say_is_rendered_from_the_definition(properties: dict[str, Any]) -> None:
    defs = {"Place": {"type": "object", "properties": {"x": {"type": "integer"}}}}
    tool = tool_of(properties, ["my-class"] if "my-class" in properties else None, **{"$defs": defs})
    method = bound(tool)
    assert not renders_exactly(tool, method)
    assert get_json_schema(method)["function"]["name"] == "move", "the function alone still renders"
    offered = ToolDefinition(tool_definition(tool), method)
    rendered, _ = render_jinja_template(
        [[{"role": "user", "content": ""}]], tools=[offered], chat_template="{{ tools[0] | tojson }}"
    )
    assert json.loads(rendered[0]) == tool_definition(tool)
    assert offered(a=1) == "ok"
    assert offered.__name__ == "move"


def test_arguments_arrive_as_they_were_given_whatever_their_names() -> None:
    heard: list[Any] = []
    method = bound(tool_of({"self": {"type": "string"}, "from": {"type": "string"}}), heard)
    method(**{"self": "me", "from": "here", "unknown": [1]})
    assert heard == [("move", {"self": "me", "from": "here", "unknown": [1]})]


def test_a_shown_tool_takes_an_argument_named_self() -> None:
    heard: list[Any] = []
    tool = tool_of({"self": {"type": "object", "properties": {"deep": {"type": "integer", "minimum": 1}}}})
    offered = ToolDefinition(tool_definition(tool), bound(tool, heard))
    offered(**{"self": {"deep": 2}})
    assert heard == [("move", {"self": {"deep": 2}})]


@pytest.mark.parametrize("name", ["reset", "get_reward", "_hidden"])
def test_a_name_that_a_trainer_hides_is_still_called_by_it(name: str) -> None:
    tool = Tool(name=name)
    assert not attribute_name(tool).startswith("_")
    assert attribute_name(tool) != name
    assert bound(tool).__name__ == name


scalars = st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array", "unknown"])
schemas = st.recursive(
    st.one_of(
        st.fixed_dictionaries({"type": scalars}),
        st.fixed_dictionaries({"enum": st.lists(st.one_of(st.integers(), st.text(max_size=3), st.none()), max_size=3)}),
        st.just({"$ref": "#/$defs/Missing"}),
        st.booleans(),
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner}),
    ),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=6), schemas, max_size=3), st.text(max_size=20))
def test_any_schema_becomes_a_function(properties: dict[str, Any], description: str) -> None:
    tool = Tool(name="move", description=description, input_schema={"type": "object", "properties": properties})
    method = bound(tool)
    renders_exactly(tool, method)
    assert inspect.getdoc(method)
    offered = ToolDefinition(tool_definition(tool), method)
    assert dict(offered) == tool_definition(tool)


VARIANTS = {
    "oneOf": [{"$ref": "#/$defs/Hit"}, {"$ref": "#/$defs/Bet"}],
    "$defs": {
        "Hit": {"type": "object", "properties": {"kind": {"const": "hit"}}, "description": "Take a card."},
        "Bet": {
            "type": "object",
            "properties": {"kind": {"const": "bet"}, "amount": {"type": "integer"}, "metadata": {"type": "object"}},
            "required": ["kind", "amount"],
        },
    },
}


def test_each_type_of_an_action_becomes_a_tool() -> None:
    tools = ActionTools.from_schema(VARIANTS)
    assert [tool.name for tool in tools.tools] == ["hit", "bet"]
    assert tools.tools[0].description == "Take a card."
    assert list(tools.tools[1].input_schema["properties"]) == ["amount"]
    assert tools.step_of("bet", {"amount": 3}) == ({"kind": "bet", "amount": 3}, "")
    assert tools.step_of("hit", {}) == ({"kind": "hit"}, "")
    action, problem = tools.step_of("bet", {})
    assert action is None
    assert "amount" in problem


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="one name"):
        ActionTools((Tool(name="a"), Tool(name="a")))
