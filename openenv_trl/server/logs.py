"""What a server process writes about itself: a line of text for people, or a JSON object a line for machines.

A record that concerns a session carries ``session_id``, ``episode_id``, ``call`` and ``transport`` as attributes, so
that any handler can use them; `about` makes them. No record holds a token.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Any, Literal

LogFormat = Literal["text", "json"]

SESSION_FIELDS = ("session_id", "episode_id", "call", "transport")
"""What a record says of the session that it concerns, where it concerns one."""

_TEXT = "%(levelname)s: %(name)s: %(message)s"


def about(
    session_id: str | None = None,
    *,
    episode_id: str | None = None,
    call: str | None = None,
    transport: str | None = None,
) -> dict[str, str]:
    """Return the ``extra`` of a record that concerns a session; what is None or empty is left out.

    Example:
        >>> logger.warning("Session %s was reaped", session_id, extra=about(session_id))
    """
    fields = zip(SESSION_FIELDS, (session_id, episode_id, call, transport), strict=True)
    return {name: value for name, value in fields if value}


class JsonLines(logging.Formatter):
    """Formats each record as one JSON object on one line.

    Keys: ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``message``; ``exception`` with the traceback where there
    is one; and the session's fields where the record has them.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in SESSION_FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                line[name] = str(value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, ensure_ascii=True)


def configure_logging(level: str, log_format: LogFormat = "text") -> None:
    """Have this process write its log to standard error.

    Args:
        level: The lowest level that is written: "debug", "info", ...
        log_format: "text" or "json".
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("uvicorn.access").addFilter(_without_query)


def _without_query(record: logging.LogRecord) -> bool:
    # Of a request's line: (client, method, path, version, status). Some put a token into the query.
    if isinstance(record.args, tuple):
        record.args = tuple(each.partition("?")[0] if isinstance(each, str) else each for each in record.args)
    return True
