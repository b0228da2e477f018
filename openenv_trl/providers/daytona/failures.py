"""What Daytona's errors mean to a user: whose fault each is, and what to set or do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from openenv_trl.errors import ConfigurationError, OpenEnvError, ProviderError, ServerStartError
from openenv_trl.providers.daytona.spec import DaytonaSpec

if TYPE_CHECKING:
    from daytona import DaytonaError


def in_our_words(error: DaytonaError, spec: DaytonaSpec, doing: str, log_tail: str = "") -> OpenEnvError:
    """Return this package's error for one of Daytona's.

    Args:
        error: Daytona's.
        spec: What was to run.
        doing: What was being done, such as ``start echo-0``.
        log_tail: The last lines of the build, where there was one.
    """
    from daytona import DaytonaConnectionError, DaytonaTimeoutError

    said = str(error).strip() or type(error).__name__
    if error.status_code == 401 or "credentials not found" in said:
        return ConfigurationError(
            f"Daytona refused to {doing}: {said} Set DAYTONA_API_KEY, or api_key=, to a key of your organisation's.",
            phase="start",
        )
    if error.status_code == 429 or re.search(r"quota|limit exceeded|no available runners", said, re.IGNORECASE):
        return ProviderError(
            f"Daytona has no room to {doing}: {said} Stop other sandboxes, ask for fewer or smaller ones, or raise the "
            "organisation's limits.",
            phase="start",
        )
    if error.status_code in (400, 403, 404, 422):
        return ConfigurationError(f"Daytona refused to {doing} ({error.status_code}): {said}", phase="start")
    if "build_failed" in said.lower():
        return ServerStartError(
            f"Daytona could not build {spec.image}: {said} Look at the build's lines:", log_tail=log_tail
        )
    if isinstance(error, DaytonaConnectionError):
        where = spec.api_url or "DAYTONA_API_URL's address, or its own"
        return ProviderError(f"Daytona does not answer at {where}, to {doing}: {said}", phase="start")
    if isinstance(error, DaytonaTimeoutError):
        return ServerStartError(
            f"Daytona did not {doing} within {spec.create_timeout_s:g} s: {said} Raise create_timeout_s, or look at:",
            log_tail=log_tail,
        )
    return ServerStartError(f"Daytona failed to {doing}: {said}", log_tail=log_tail)
