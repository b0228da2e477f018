"""Servers that run already are asked whether they are there before anything else is done."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import anyio

from openenv_trl.client import fetch_health
from openenv_trl.errors import OpenEnvError

logger = logging.getLogger(__name__)


async def check_servers(urls: Sequence[str], headers: Mapping[str, str] | None = None) -> None:
    """Check that the servers of an environment answer. One is enough; of the others a warning tells.

    Args:
        urls: Their addresses.
        headers: HTTP headers of the requests.

    Raises:
        ConnectionFailedError: None answers; the message is about the first.
        DeadlineExceededError: Likewise, and it took too long.
        ProtocolError: Likewise, and what listens there is no OpenEnv server.
    """
    errors: dict[str, OpenEnvError] = {}

    async def ask(url: str) -> None:
        try:
            await fetch_health(url, headers=headers)
        except OpenEnvError as error:
            errors[url] = error

    async with anyio.create_task_group() as group:
        for url in dict.fromkeys(urls):
            group.start_soon(ask, url)
    if errors and len(errors) == len(set(urls)):
        raise errors[urls[0]]
    for url, error in errors.items():
        logger.warning("The environment server at %s does not answer: %s", url, error)
