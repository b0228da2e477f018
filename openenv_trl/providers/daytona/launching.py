"""What is run in a sandbox: how its server's command is found, and how it is started so that its end is told."""

from __future__ import annotations

import shlex
from typing import Any, cast

import yaml

from openenv_trl.errors import ServerStartError
from openenv_trl.providers.daytona.spec import DaytonaSpec

_PLACE = "openenv-trl manifest: "
_HAS = "openenv-trl is there"
_PYTHON = "python=$(command -v python || command -v python3)"

LOOK = f"""
manifest=/app/env/openenv.yaml
[ -f "$manifest" ] || manifest=$(find -L /app -maxdepth 4 -name openenv.yaml 2>/dev/null | head -n 1)
{_PYTHON}
"$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("openenv_trl"))' && echo '{_HAS}'
if [ -n "$manifest" ]; then echo "{_PLACE}$manifest"; cat "$manifest"; fi
true
"""
"""A shell script that finds an environment in a sandbox."""


def serving_command(spec: DaytonaSpec, found: str) -> str:
    """Return the shell's command that serves.

    Args:
        spec: What is to run; its ``command``, where it has one, is what serves.
        found: What `LOOK` printed.

    Raises:
        ServerStartError: There is no environment in the sandbox, and no command was given.
    """
    if spec.command is not None:
        return in_subshell(None, shlex.join(spec.command))
    before, mark, after = found.partition(_PLACE)
    if not mark:
        raise ServerStartError(
            f"The image {spec.image} has no openenv.yaml below /app, so nobody knows what serves in it. Set command, "
            'such as ["python", "-m", "uvicorn", "server.app:app", "--host", "0.0.0.0", "--port", "8000"].',
            log_tail=found,
        )
    path, _, text = after.partition("\n")
    folder = path.strip().rpartition("/")[0]
    address = f"--host 0.0.0.0 --port {spec.port}"
    if _HAS in before:
        return in_subshell(folder, f'"$python" -m openenv_trl.server {shlex.quote(folder)} {address}')
    return in_subshell(folder, f'"$python" -m uvicorn {shlex.quote(_app_of(text, path))} {address}')


def in_subshell(folder: str | None, command: str) -> str:
    """Return a command that keeps to itself what it changes: the shell of a session has to live on to tell its end."""
    change = "" if folder is None else f"cd {shlex.quote(folder)} && {_PYTHON} && "
    return f"({change}exec {command}) 2>&1"


def _app_of(text: str, path: str) -> str:
    try:
        content: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ServerStartError(f"The {path} in the sandbox cannot be read: {error}") from error
    settings = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    return str(settings.get("app") or "server.app:app")
