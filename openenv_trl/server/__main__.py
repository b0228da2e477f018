"""``python -m openenv_trl.server PATH_OR_IMPORT``: serve one environment."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.server.import_failure import import_failure
from openenv_trl.server.loading import load_app
from openenv_trl.server.serving import ServerSettings, serve

logger = logging.getLogger("openenv_trl.server")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop. Returns the process's exit status."""
    given = _parser().parse_args(arguments)
    settings = ServerSettings(host=given.host, port=given.port, fd=given.fd, log_level=given.log_level)
    logging.basicConfig(level=given.log_level.upper(), format="%(levelname)s: %(name)s: %(message)s")
    if given.max_concurrent_envs is not None:
        os.environ["MAX_CONCURRENT_ENVS"] = str(given.max_concurrent_envs)
    try:
        app = load_app(given.target)
    except ConfigurationError as error:
        return _fail(f"error: {error}")
    except Exception as error:
        # The application's own code: whatever it raises is shown as its error, and not as one of this command.
        return _fail(import_failure(given.target, error))
    _warn_of_another_limit(app, given.max_concurrent_envs)
    try:
        serve(app, settings)
    except ConfigurationError as error:
        return _fail(f"error: {error}")
    return 0


def _fail(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


def _warn_of_another_limit(app: Callable[..., Any], wanted: int | None) -> None:
    allowed = getattr(getattr(app, "state", None), "max_concurrent_envs", None)
    if wanted is not None and allowed is not None and allowed != wanted:
        logger.warning(
            "--max-concurrent-envs=%d has no effect: the application allows %d. Read MAX_CONCURRENT_ENVS in it: "
            'create_app(..., max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", "%d")))',
            wanted,
            allowed,
            allowed,
        )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is too few: a server needs room for one session at least")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m openenv_trl.server", description="Serve one environment.")
    parser.add_argument("target", help="folder of an environment package, or module:attribute of an application")
    parser.add_argument("--host", default=ServerSettings.host, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=ServerSettings.port, help="0 for any (default: %(default)s)")
    parser.add_argument("--fd", type=int, help="inherited listening socket, in place of host and port")
    parser.add_argument("--max-concurrent-envs", type=_positive, help="sets MAX_CONCURRENT_ENVS, for the application")
    levels = ("critical", "error", "warning", "info", "debug")
    parser.add_argument("--log-level", choices=levels, default=ServerSettings.log_level)
    return parser


if __name__ == "__main__":
    sys.exit(main())
