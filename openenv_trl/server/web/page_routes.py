"""``/web/reset``, ``/web/step``, ``/web/state``: an episode over HTTP, in the public package's shapes.

Each visitor has a session of their own, known by a cookie that the first reset sets. A request without it, or whose
session has ended, finds no episode (409). What does not fit is told field by field (422), as everywhere in this server.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict

from openenv_trl.errors import EnvironmentFactoryError, OpenEnvError, SessionLostError, SessionStateError
from openenv_trl.server.http_bodies import BodyError, error_response, json_response, parse_body
from openenv_trl.server.web.page import Page
from openenv_trl.server.web.visitor import Visitor
from openenv_trl.server.workers.affinity import PAGE_COOKIE

_NO_EPISODE = (
    f"There is no episode: POST /web/reset first, and send the cookie {PAGE_COOKIE} that it sets with each request."
)


class _Arguments(BaseModel):
    """The body of a reset: its arguments."""

    model_config = ConfigDict(extra="allow")


class _Step(BaseModel):
    """The body of a step: an action, or the text of one whose only field is a message."""

    action: dict[str, Any] | None = None
    message: str | None = None


class Visitors:
    """Those who have a session over HTTP, by its id.

    Args:
        page: What they visit.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self._visitors: dict[str, Visitor] = {}

    def find(self, session_id: str | None) -> Visitor | None:
        """Return who has that session; None where nobody has."""
        return self._visitors.get(session_id or "")

    async def reset(self, session_id: str | None, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Begin an episode in that session, or in a new one. Returns its id and what the page shows.

        Raises:
            OpenEnvError: As `Visitor.reset`.
        """
        visitor = self.find(session_id)
        if visitor is None:
            visitor = Visitor(self._page.host, wait_s=0.0, keeps_log=True)
        try:
            shown = await visitor.reset(arguments)
        except BaseException:
            if visitor.session is not None and self.find(visitor.session.session_id) is None:
                await visitor.leave()  # nobody learns its id
            raise
        session = visitor.session
        if session is None:
            raise SessionLostError("The session ended right after its reset. Reset again.")
        if self.find(session.session_id) is None:
            self._visitors[session.session_id] = visitor
            session.watch_end(lambda: self._forget(session.session_id))
        return session.session_id, shown

    def _forget(self, session_id: str) -> None:
        self._visitors.pop(session_id, None)


def install_page_routes(app: FastAPI, page: Page, visitors: Visitors) -> None:
    """Add the routes to an application, and none that plays in production mode."""
    limit = page.max_message_bytes

    async def metadata() -> Response:
        """What the environment says of itself, with its README."""
        try:
            return json_response((await page.metadata()).model_dump())
        except EnvironmentFactoryError as error:
            return error_response(error)

    async def reset(request: Request) -> Response:
        """Begin an episode in the visitor's own session."""
        try:
            body = await parse_body(request, _Arguments, limit, default=b"{}")
            session_id, shown = await visitors.reset(request.cookies.get(PAGE_COOKIE), body.model_dump())
        except BodyError as error:
            return error.response
        except OpenEnvError as error:
            return error_response(error)
        response = json_response(shown["data"])
        is_secure = request.url.scheme == "https"
        response.set_cookie(PAGE_COOKIE, session_id, httponly=True, samesite="strict", secure=is_secure)
        return response

    async def step(request: Request) -> Response:
        """Take one step in it."""
        try:
            body = await parse_body(request, _Step, limit)
            action = {"message": body.message} if body.action is None and body.message is not None else body.action
            if action is None:
                missing = {"type": "missing", "loc": ["body", "action"], "msg": "Field required", "input": None}
                return json_response({"detail": [missing]}, 422)
            return json_response((await _visitor(request).step(action))["data"])
        except BodyError as error:
            return error.response
        except (SessionStateError, SessionLostError) as error:
            return json_response({"detail": str(error)}, 409)
        except OpenEnvError as error:
            return error_response(error)

    async def state(request: Request) -> Response:
        """The state of its environment."""
        try:
            return json_response(await _visitor(request).read_state())
        except (SessionStateError, SessionLostError) as error:
            return json_response({"detail": str(error)}, 409)
        except OpenEnvError as error:
            return error_response(error)

    def _visitor(request: Request) -> Visitor:
        visitor = visitors.find(request.cookies.get(PAGE_COOKIE))
        if visitor is None:
            raise SessionStateError(_NO_EPISODE)
        return visitor

    app.add_api_route("/web/metadata", metadata, methods=["GET"])
    if not page.is_production:
        app.add_api_route("/web/reset", reset, methods=["POST"], response_class=Response)
        app.add_api_route("/web/step", step, methods=["POST"], response_class=Response)
        app.add_api_route("/web/state", state, methods=["GET"], response_class=Response)
