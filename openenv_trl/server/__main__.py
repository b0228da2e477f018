"""``python -m openenv_trl.server PATH_OR_IMPORT``: serve one environment."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.server.lease import Lease, LeaseRecord, keep_lease, take_lease
from openenv_trl.server.listening import address, listen
from openenv_trl.server.logs import configure_logging
from openenv_trl.server.workers.place import WorkerPlace, take_place

WORKERS_VARIABLE = "OPENENV_TRL_WORKERS"
"""The environment variable that says how many processes serve, where the command line does not."""

logger = logging.getLogger("openenv_trl.server")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop. Returns the process's exit status."""
    given = _parser().parse_args(arguments)
    configure_logging(given.log_level, given.log_format)
    if given.max_concurrent_envs is not None:
        os.environ["MAX_CONCURRENT_ENVS"] = str(given.max_concurrent_envs)
    if given.web:
        # The workers', too, as they are this process's children; and of applications that are given settings.
        os.environ["OPENENV_TRL_WEB_INTERFACE"] = os.environ["ENABLE_WEB_INTERFACE"] = "true"
    place = take_place()
    try:
        lease = take_lease()
        if lease is not None:
            lease.watch()
        if place is None and _workers(given.workers) > 1:
            return _serve_with_workers(given, lease)
        return _serve_here(given, place)
    except ConfigurationError as error:
        return _fail(f"error: {error}")
    finally:
        gc.enable()


def _serve_here(given: argparse.Namespace, place: WorkerPlace | None) -> int:
    # A tenth of a start would go into looking for garbage among what is imported. `serve` enables it again.
    gc.disable()
    # Imported here: the parent of several workers does without.
    from openenv_trl.server.import_failure import import_failure
    from openenv_trl.server.loading import load_app
    from openenv_trl.server.serving import ServerSettings, serve

    if place is not None:
        from openenv_trl.server.workers.worker import begin_worker

        begin_worker(place)
        if place.lease is not None:
            keep_lease(Lease(place.lease, LeaseRecord(place.lease_fd), watched=False))
    settings = ServerSettings(host=given.host, port=given.port, fd=given.fd, log_level=given.log_level)
    speaks = place is None or place.index == 0  # what is true of all workers is said once
    try:
        app = load_app(given.target)
    except ConfigurationError as error:
        return _fail(f"error: {error}", speaks)
    except Exception as error:
        # The application's own code: whatever it raises is shown as its error, and not as one of this command.
        return _fail(import_failure(given.target, error), speaks)
    if speaks:
        _warn_of_another_limit(app, given.max_concurrent_envs)
        if given.web and "/ws/ui" not in getattr(getattr(app, "state", None), "doors", ()):
            logger.warning("--web has no effect: the application is not one that create_app returned")
    serve(app, settings, place)
    return 0


def _serve_with_workers(given: argparse.Namespace, lease: Lease | None) -> int:
    from openenv_trl.server.workers.parent import WorkersParent

    with listen(given.host, given.port, given.fd) as listening:
        command = [sys.executable, "-m", "openenv_trl.server", given.target, "--fd", str(listening.fileno())]
        command += ["--log-level", given.log_level, "--log-format", given.log_format]
        if given.max_concurrent_envs is not None:
            command += ["--max-concurrent-envs", str(given.max_concurrent_envs)]
        workers = _workers(given.workers)

        def ready() -> None:
            logger.info("Serving on %s with %d workers", address(listening), workers)

        return WorkersParent(command, listening, workers, ready, lease).run()


def _workers(given: int | None) -> int:
    if given is not None:
        return given
    text = os.environ.get(WORKERS_VARIABLE, "").strip() or "1"
    try:
        return _positive(text)
    except (ValueError, argparse.ArgumentTypeError):
        raise ConfigurationError(f"{WORKERS_VARIABLE}={text!r} is no number of processes: give 1 or more.") from None


def _fail(message: str, speaks: bool = True) -> int:
    if speaks:
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
        raise argparse.ArgumentTypeError(f"{number} is too few: it must be 1 at least")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m openenv_trl.server", description="Serve one environment.")
    parser.add_argument("target", help="folder of an environment package, or module:attribute of an application")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="0 for any (default: %(default)s)")
    parser.add_argument("--fd", type=int, help="inherited listening socket, in place of host and port")
    parser.add_argument("--max-concurrent-envs", type=_positive, help="sets MAX_CONCURRENT_ENVS, for the application")
    parser.add_argument(
        "--workers", type=_positive, help=f"processes that share the port (default: {WORKERS_VARIABLE}, then 1)"
    )
    parser.add_argument("--web", action="store_true", help="with a debug page at /web/")
    levels = ("critical", "error", "warning", "info", "debug")
    parser.add_argument("--log-level", choices=levels, default="info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="json: one object a line")
    return parser


if __name__ == "__main__":
    sys.exit(main())
