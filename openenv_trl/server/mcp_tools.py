"""One session's tools, as an agent of the Model Context Protocol lists and calls them.

What the model did wrong (a tool that does not exist, arguments that do not fit) and what the tool itself could not do
come back as results with ``isError``, which the model reads. Only what no model can mend (the session is gone) is an
error of the protocol.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import anyio

from openenv_trl.errors import ActionValidationError, ConfigurationError, EnvironmentExecutionError, OpenEnvError
from openenv_trl.progress import progress_listener
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.server.mcp_progress import ProgressReports
from openenv_trl.server.mcp_results import NO_OTHER, agent_mistake, agent_result, agent_tools
from openenv_trl.server.mcp_sdk import Caller, ProtocolFailure, Report
from openenv_trl.wire.rpc import RpcErrorCode
from openenv_trl.wire.tools import mcp_tool

logger = logging.getLogger("openenv_trl.server")


class AgentTools:
    """The tools of one session.

    Args:
        hosted: The session.
        progress_interval_s: How often a client that asked for progress hears of a call that says nothing itself.
    """

    def __init__(self, hosted: HostedSession, progress_interval_s: float) -> None:
        self._hosted = hosted
        self._interval_s = progress_interval_s
        self._listed: list[dict[str, Any]] | None = None

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return the entries of ``tools/list``.

        Raises:
            ProtocolFailure: The environment could not list them.
        """
        try:
            self._listed = agent_tools(await self._offered())
        except OpenEnvError as error:
            raise ProtocolFailure(RpcErrorCode.SERVER_ERROR, str(error)) from error
        return self._listed

    async def call_tool(self, name: str, arguments: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Return the result of ``tools/call``.

        Raises:
            ProtocolFailure: The session takes no calls any more.
        """
        if caller.report is None:
            outcome = await self._call(name, arguments)
        else:
            outcome = await self._call_with_progress(name, arguments, caller.report)
        if isinstance(outcome, ProtocolFailure):
            raise outcome
        if outcome["isError"] and self._hosted.session.is_episode_over:  # whatever the environment advises
            outcome["content"].append({"type": "text", "text": NO_OTHER})
        if await self._is_list_outdated():
            self._listed = None  # told once, until the client lists them again
            await caller.tools_changed()
        return outcome

    async def _offered(self) -> list[dict[str, Any]]:
        if self._hosted.lists_tools_itself:
            return await self._hosted.call_method("listed_tools")
        return [mcp_tool(tool) for tool in self._hosted.tools]

    async def _is_list_outdated(self) -> bool:
        if self._listed is None or not self._hosted.lists_tools_itself:
            return False  # marked methods are always the same
        try:
            return self._listed != agent_tools(await self._offered())
        except OpenEnvError:
            return False  # the next call is told what has become of the session

    async def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any] | ProtocolFailure:
        try:
            value = await self._hosted.call_tool(name, arguments)
        except ActionValidationError as error:
            return agent_mistake(str(error))
        except (ConfigurationError, EnvironmentExecutionError) as error:
            return agent_mistake(f"The tool '{name}' failed: {error}")
        except OpenEnvError as error:
            return ProtocolFailure(RpcErrorCode.SERVER_ERROR, str(error))
        try:
            return agent_result(value)
        except TypeError as error:
            text = "The result of the tool '%s' cannot be sent: %s"
            logger.error(text, name, error, extra=self._hosted.about("tool call"))
            return agent_mistake(f"The tool '{name}' was called, but its result cannot be sent as JSON: {error}")

    async def _call_with_progress(
        self, name: str, arguments: dict[str, Any], report: Report
    ) -> dict[str, Any] | ProtocolFailure:
        outcome: dict[str, Any] | ProtocolFailure = ProtocolFailure(RpcErrorCode.SERVER_ERROR, "The call did not end.")
        reports = ProgressReports(asyncio.get_running_loop())
        before = progress_listener.set(reports.put)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reports.send_all, report, self._interval_s)
                outcome = await self._call(name, arguments)
                reports.end()
            return outcome
        finally:
            progress_listener.reset(before)
