"""Errors as the Google Calendar API gives them: a code, a reason, and a message that says what to change.

Source: "Handle API errors", Google Calendar API v3, for codes and reasons.
"""

from __future__ import annotations

from typing import Any


class CalendarError(Exception):
    """A call that was refused. It changed nothing.

    Attributes:
        code: The HTTP status: 400, 403, 404, 409 or 410.
        reason: The API's word for it, such as "notFound".
        message: What was wrong and what to change.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message

    def resource(self) -> dict[str, Any]:
        """The error as the API's answer shows it."""
        detail = {"domain": "calendar" if self.code == 403 else "global", "reason": self.reason}
        return {"error": {"code": self.code, "message": self.message, "errors": [{**detail, "message": self.message}]}}


def invalid(message: str, reason: str = "invalid") -> CalendarError:
    """A value that cannot be used."""
    return CalendarError(400, reason, message)


def required(name: str) -> CalendarError:
    """A value that is missing."""
    return CalendarError(400, "required", f"Missing required field: {name}.")


def forbidden(message: str, reason: str = "forbidden") -> CalendarError:
    """Something that the acting user may not do."""
    return CalendarError(403, reason, message)


def needs_role(role: str, calendar_id: str, current: str) -> CalendarError:
    """A calendar on which the acting user has too small a role."""
    return CalendarError(
        403,
        "requiredAccessLevel",
        f"You need to have {role} access to the calendar '{calendar_id}'; yours is {current}.",
    )


def quota(message: str) -> CalendarError:
    """More than a calendar holds."""
    return CalendarError(403, "quotaExceeded", f"Calendar usage limits exceeded. {message}")


def not_found(what: str, hint: str = "") -> CalendarError:
    """Something that is not there, or that the acting user may not know of."""
    return CalendarError(404, "notFound", f"Not found: {what}.{f' {hint}' if hint else ''}")


def duplicate(what: str) -> CalendarError:
    """An identifier that is taken."""
    return CalendarError(409, "duplicate", f"The requested identifier already exists: {what}. Choose another one.")


def deleted(what: str) -> CalendarError:
    """Something that is there no longer."""
    return CalendarError(410, "deleted", f"Resource has been deleted: {what}.")
