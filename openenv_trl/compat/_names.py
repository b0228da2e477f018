"""What the alias modules have in common: a name of an environment's is found in each, one not offered says what to use.

The public package's modules import from one another, and environment packages take names from wherever they are seen.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

_NONE: Mapping[str, str] = MappingProxyType({})

_NO_MODELS = "language models are the trainer's here"
_NO_GRADIO = "the debug page is not made with Gradio: override render_web and web_actions of the environment"
_NO_MANAGER = "each visitor of the debug page has a session of their own, and nothing manages them all"
_OWN_LINES = "write the lines that you use into your package"
_NO_ROUTES = "add routes to the app that create_app returns"
NOT_OFFERED = {
    "ActionLog": _NO_MANAGER,
    "AnthropicClient": _NO_MODELS,
    "EpisodeState": _NO_MANAGER,
    "GetEndpointConfig": _NO_ROUTES,
    "LLMClient": _NO_MODELS,
    "LLMJudge": "write a Rubric whose forward asks your model",
    "LLMResponse": _NO_MODELS,
    "MCP_TOOL_CALL_TIMEOUT": "a step's timeout_s is the tool call's",
    "OpenAIClient": _NO_MODELS,
    "ToolCall": _NO_MODELS,
    "WebInterfaceManager": _NO_MANAGER,
    "build_gradio_app": _NO_GRADIO,
    "convert_to_ws_url": "clients take any form of the address",
    "create_llm_client": _NO_MODELS,
    "deserialize_action_with_preprocessing": "the debug page's forms send JSON: use deserialize_action",
    "get_gradio_display_title": _NO_GRADIO,
    "get_quick_start_markdown": _NO_GRADIO,
    "get_server_tools": "ask the MCP server object for its tools",
    "hf_space_subdomain": _OWN_LINES,
    "load_environment_metadata": "override get_metadata of the environment",
    "overrides_method": _OWN_LINES,
    "register_get_endpoints": _NO_ROUTES,
    "run_async_safely": "define reset_async and step_async on the environment, and await there",
}
"""Names of the public package that have no counterpart, and why."""

_RUNTIME = "openenv_trl.compat.containers.runtime"
_PROVIDERS = {
    "ContainerProvider": "openenv_trl.providers.container_calls",
    "DaytonaProvider": f"{_RUNTIME}.daytona_provider",
    "DockerSwarmProvider": "openenv_trl.providers.swarm",
    "KubernetesProvider": "openenv_trl.providers.kubernetes",
    "LocalDockerProvider": "openenv_trl.providers.docker",
    "RuntimeProvider": "openenv_trl.providers.container_calls",
    "UVProvider": f"{_RUNTIME}.uv_provider",
}
"""What starts servers: offered in each module, as the public package's modules pass them on to one another."""


def names_of(module: str, homes: Mapping[str, str] = _NONE) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of an alias module.

    Args:
        module: Its name.
        homes: The modules of names that are not in `openenv_trl.env_server`.
    """

    def find(name: str) -> Any:
        if name in NOT_OFFERED:
            # An AttributeError would lose its text on the way through ``from ... import``.
            raise ImportError(f"{module} does not offer {name!r}: {NOT_OFFERED[name]}.", name=module)
        home = homes.get(name) or _PROVIDERS.get(name)
        if home is not None:
            return getattr(importlib.import_module(home), name)
        from openenv_trl import env_server

        if name not in env_server.__all__:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(env_server, name)

    return find
