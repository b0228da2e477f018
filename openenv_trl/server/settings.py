"""How an application holds its sessions: the settings beyond the public package's arguments.

Each field can be given to `create_app` (``settings=AppSettings(...)``) or as an environment variable named
``OPENENV_TRL_`` and the field's name in capitals; what is given in code wins.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from openenv_trl.errors import ConfigurationError
from openenv_trl.wire.frames import MAX_MESSAGE_BYTES

Execution = Literal["auto", "loop", "thread", "process"]

_PREFIX = "OPENENV_TRL_"
_OTHERS = frozenset({"OPENENV_TRL_WORKERS", "OPENENV_TRL_WORKER_PLACE", "OPENENV_TRL_PRELOAD"})  # no settings of an app
_warned: set[str] = set()  # an application may be made many times in a process

logger = logging.getLogger("openenv_trl.server")


class AppSettings(BaseModel):
    """Settings of one application. Times are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    execution: Execution | None = None
    """Where hooks run: "auto" (asynchronous hooks on the event loop, others in threads), "loop" (all on the event loop:
    for hooks that take microseconds), "thread" (all in threads), "process" (each environment in a process of its own,
    killed with its step when that passes its deadline). None: as the environment class says (``EXECUTION``)."""
    step_timeout_s: float | None = Field(default=None, gt=0)
    """The longest a reset, step or tool call may take; None for no limit but the client's own deadline."""
    detached_timeout_s: float | None = Field(default=900.0, gt=0)
    """How long a session that no connection holds (opened over HTTP) lives after its last call. Long enough for a slow
    model's turn; None for ever."""
    idle_timeout_s: float | None = Field(default=21_600.0, gt=0)
    """How long a session on an open, living connection may go without a call. Six hours: longer than any pause of a
    trainer between two batches; None for ever."""
    resume_timeout_s: float = Field(default=30.0, ge=0)
    """How long a session on the native wire waits for its client to come back after its connection broke. Two seconds
    at most where others wait for what it does (``metadata["others_wait"]``), such as the other side of a match."""
    drain_timeout_s: float = Field(default=30.0, ge=0)
    """How long running episodes get to end after SIGTERM."""
    max_waiting: int = Field(default=4096, ge=0)
    """Clients that may wait for a slot at once; later ones are refused as at capacity."""
    max_message_bytes: int = Field(default=MAX_MESSAGE_BYTES, ge=1024)
    """The longest message in either direction."""
    ping_interval_s: float = Field(default=20.0, gt=0)
    """A peer that has sent nothing for this long is asked whether it lives, and taken for dead after as long again
    without an answer. Under a server of the user's own (uvicorn, hypercorn) that server's setting holds."""
    head_timeout_s: float = Field(default=10.0, gt=0)
    """How long the head of an HTTP request (a socket's handshake, too) may take, and its body may stand still. Under a
    server of the user's own (uvicorn, hypercorn) that server's setting holds."""
    token: SecretStr | None = None
    """The trainer's secret: with it set, every route but /health, /ready needs ``Authorization: Bearer <token>``."""
    agent_token: SecretStr | None = None
    """The agent's secret: it opens the Model Context Protocol's route, and nothing else."""
    allowed_origins: tuple[str, ...] = ()
    """Origins that browsers may connect from beside the server's own; ``*`` for any."""
    web_interface: bool | None = None
    """Whether the server has a debug page at /web/. None: as the public package's variable ENABLE_WEB_INTERFACE says
    (true, 1 or yes)."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> AppSettings:
        """Return the settings that environment variables give.

        Raises:
            ConfigurationError: A variable's value does not fit; the text names the variable.
        """
        variables = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for name in cls.model_fields:
            text = variables.get(_PREFIX + name.upper())
            if text is not None and text.strip():
                values[name] = _parse(name, text.strip())
        _warn_of_near_misses(variables, cls.model_fields)
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = _PREFIX + str(first["loc"][0]).upper()
            raise ConfigurationError(f"The environment variable {name} cannot be used: {first['msg']}.") from error


def _warn_of_near_misses(variables: Mapping[str, str], fields: Iterable[str]) -> None:
    known = {_PREFIX + name.upper() for name in fields}
    for name in sorted(variables):
        if not name.startswith(_PREFIX) or name in known or name in _OTHERS or name in _warned:
            continue
        near = difflib.get_close_matches(name.removeprefix(_PREFIX), [each.removeprefix(_PREFIX) for each in known], 1)
        if near and not name.startswith(f"{_PREFIX}REQUIRE_"):
            _warned.add(name)
            logger.warning("The environment variable %s has no effect: did you mean %s%s?", name, _PREFIX, near[0])


def _parse(name: str, text: str) -> Any:
    if name == "allowed_origins":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if text.lower() == "none" and name.endswith("_s"):
        return None
    return text
