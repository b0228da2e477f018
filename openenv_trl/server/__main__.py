"""``python -m openenv_trl.server PATH_OR_IMPORT``: serve one environment."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from openenv_trl.errors import ConfigurationError
from openenv_trl.server.loading import load_app
from openenv_trl.server.serving import ServerSettings, serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop. Returns the process's exit status."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=given.log_level.upper(), format="%(levelname)s: %(name)s: %(message)s")
    if given.max_concurrent_envs is not None:
        os.environ["MAX_CONCURRENT_ENVS"] = str(given.max_concurrent_envs)
    try:
        app = load_app(given.target)
        serve(app, ServerSettings(host=given.host, port=given.port, fd=given.fd, log_level=given.log_level))
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m openenv_trl.server", description="Serve one environment.")
    parser.add_argument("target", help="folder of an environment package, or module:attribute of an application")
    parser.add_argument("--host", default=ServerSettings.host, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=ServerSettings.port, help="0 for any (default: %(default)s)")
    parser.add_argument("--fd", type=int, help="inherited listening socket, in place of host and port")
    parser.add_argument("--max-concurrent-envs", type=int, help="sets MAX_CONCURRENT_ENVS, which applications read")
    levels = ("critical", "error", "warning", "info", "debug")
    parser.add_argument("--log-level", choices=levels, default=ServerSettings.log_level)
    return parser


if __name__ == "__main__":
    sys.exit(main())
