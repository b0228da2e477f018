"""What all visitors of a debug page share: the environment's description, and the server's numbers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from openenv_trl.errors import EnvironmentFactoryError
from openenv_trl.server.arguments import EnvironmentModels
from openenv_trl.server.host import SessionHost
from openenv_trl.server.probes import capacity_of
from openenv_trl.server.web.description import action_schema, known_tools, readme_of, reset_schema
from openenv_trl.types import EnvironmentMetadata, ServerMode

logger = logging.getLogger("openenv_trl.server")


class Page:
    """The page of one application.

    Args:
        app: The application; its state has ``session_host``, ``models``, ``settings``, ``metrics``, ``loop_lag``.
        factory: Builds the environments.
        title: What stands at the top; the environment's name if None.

    Attributes:
        host: Where visitors' sessions are opened.
        max_message_bytes: The longest message to a page.
    """

    def __init__(self, app: FastAPI, factory: Callable[[], Any], title: str | None) -> None:
        self.host: SessionHost = app.state.session_host
        self.max_message_bytes: int = app.state.settings.max_message_bytes
        self._app = app
        self._factory = factory
        self._title = title
        self._forms: dict[str, Any] | None = None
        self._readme: str | None = None

    @property
    def is_production(self) -> bool:
        """Whether the server is for an agent at work: then no episode is played from the page."""
        return self.host.mode is ServerMode.PRODUCTION

    def needs_token(self) -> bool:
        """Whether the server's clients need a token."""
        return bool(self._app.state.access.needs_token)

    async def metadata(self) -> EnvironmentMetadata:
        """Return what the environment says of itself, with its README.

        Raises:
            EnvironmentFactoryError: The factory raised.
        """
        metadata = await self.host.metadata()
        if self._readme is None:
            self._readme = metadata.readme_content or readme_of(self._factory) or ""
        return metadata.model_copy(update={"readme_content": self._readme or None})

    async def about(self) -> dict[str, Any]:
        """Return what a page is told first."""
        name, problem = self._app.state.env_name, None
        try:
            metadata = (await self.metadata()).model_dump()
        except EnvironmentFactoryError as error:
            metadata, problem = {"name": name, "description": ""}, str(error)
        if self._forms is None:
            self._forms = self._described()
        return {
            "type": "about",
            "title": self._title or metadata["name"],
            "env_name": name,
            "metadata": metadata,
            "problem": problem,
            "mode": self.host.mode.value,
            **self._forms,
        }

    def numbers(self) -> dict[str, Any]:
        """Return how the server is doing: capacity of the whole server, the rest of this process."""
        metrics = self._app.state.metrics
        calls = {kind: {"count": 0, "seconds": 0.0} for kind in ("reset", "step", "tool")}
        failed = 0
        for (kind, outcome), seconds in metrics.calls.items():
            if kind in calls:
                calls[kind]["count"] += sum(seconds.counts)
                calls[kind]["seconds"] += round(seconds.total, 6)
            failed += sum(seconds.counts) if outcome != "ok" else 0
        return {
            **capacity_of(self._app, self.host),
            "opened": sum(metrics.opened.values()),
            "calls": calls,
            "failed_calls": failed,
            "lag_max_s": round(self._app.state.loop_lag.highest(time.monotonic()), 3),
        }

    def _described(self) -> dict[str, Any]:
        models: EnvironmentModels = self._app.state.models
        tools = known_tools(self._factory)
        try:
            action = action_schema(models.action_cls)
        except Exception as error:  # boundary: schemas are made by the environment author's code
            logger.warning("The debug page has no form for %s: %s", models.action_cls.__name__, error)
            action = {"title": models.action_cls.__name__}
        return {
            "action_schema": action,
            "reset_schema": reset_schema(self._factory),
            "tools": None if tools is None else [tool.model_dump() for tool in tools],
        }
