"""How a project's application is served under ``uv run``, by what its environment has.

The rule: where the project's environment has this package, its own server serves (the native wire, a socket that
listens from the start). Where it has not, as with an environment written for the public package, plain uvicorn serves
the application as it is, and is added to the environment where it is missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from openenv_trl.errors import ConfigurationError, ServerStartError
from openenv_trl.providers.uv.commands import LEAVE_OUT
from openenv_trl.providers.uv.git_address import without_secrets
from openenv_trl.providers.uv.spec import UVSpec

_DEFAULT_APP = "server.app:app"
_MARK = "openenv-trl has: "
_LOOK = (
    "import json, importlib.util as u\n"
    f"print({_MARK!r} + json.dumps([n for n in ('openenv_trl', 'uvicorn', 'websockets') if u.find_spec(n)]))"
)
QUIET = {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
"""Environment variables that keep uv's own lines out of a log, and colours out of all lines."""


@dataclass(frozen=True)
class Project:
    """A project's folder, and what serves it."""

    folder: Path
    uv: str
    spec: UVSpec

    @classmethod
    def at(cls, folder: Path, uv: str, spec: UVSpec) -> Project:
        """Check a folder.

        Raises:
            ConfigurationError: It is no project's.
        """
        what = without_secrets(spec.project)
        if not folder.is_dir():
            raise ConfigurationError(f"project '{what}': there is no folder {folder.name}. Check the path.")
        if not (folder / "pyproject.toml").is_file():
            raise ConfigurationError(
                f"project '{what}' has no pyproject.toml, so uv does not know what it needs. Name the folder that has "
                "one (#subdirectory=folder in a git address), or write one."
            )
        return cls(folder, uv, spec)

    def run(self, *command: str, beside: tuple[str, ...] = ()) -> list[str]:
        """Return the words that run a command in the project's environment.

        Args:
            *command: The command.
            beside: Packages that it needs beside the project's.
        """
        spec = self.spec
        words = [self.uv, "run", "--project", str(self.folder)]
        words += ["--isolated"] if spec.isolated else []
        words += [] if spec.python is None else ["--python", spec.python]
        for package in (*spec.with_packages, *beside):
            words += ["--with", package]
        for index in spec.extra_index:
            words += ["--index", index]
        return [*words, "--", *command]

    def look(self) -> list[str]:
        """Return the words that install the project's packages, and tell which of those that serve are among them."""
        return self.run("python", "-c", _LOOK)

    def read_look(self, code: int | None, said: str) -> set[str]:
        """Return the packages that serve, from what the look said.

        Raises:
            ServerStartError: The environment could not be made; the error has uv's last lines.
        """
        if code == 0:
            found = [line for line in said.splitlines() if line.startswith(_MARK)]
            return set(json.loads(found[-1].removeprefix(_MARK))) if found else set()
        spec = self.spec
        why = (
            f"was not made within {spec.prepare_timeout_s:g} s (prepare_timeout_s)"
            if code is None
            else "cannot be made"
        )
        raise ServerStartError(
            f"The environment of project '{without_secrets(spec.project)}' {why}. Check its dependencies and requires-"
            "python in pyproject.toml, and the indexes that uv is configured with. uv said:",
            log_tail=without_secrets(said),
        )

    def serve(self, has: set[str]) -> list[str]:
        """Return the words that serve it, with ``{host}`` and ``{port}`` or ``{fd}`` to be filled in.

        Args:
            has: The packages that serve and are there.
        """
        spec = self.spec
        if "openenv_trl" in has and not spec.reload:
            target = spec.app or (str(self.folder) if self._manifest() else _DEFAULT_APP)
            workers = [] if spec.workers == 1 else ["--workers", str(spec.workers)]
            server = ["python", "-m", "openenv_trl.server", target, "--fd", "{fd}", *workers]
            return [*LEAVE_OUT, *self.run(*server)]
        missing = tuple(each for each in ("uvicorn", "websockets") if each not in has)
        app = spec.app or str(self._manifest().get("app") or _DEFAULT_APP)
        more = ["--reload"] if spec.reload else [] if spec.workers == 1 else ["--workers", str(spec.workers)]
        server = ["python", "-m", "uvicorn", app, "--host", "{host}", "--port", "{port}", *more]
        return [*LEAVE_OUT, *self.run(*server, beside=missing)]

    def _manifest(self) -> dict[str, Any]:
        file = self.folder / "openenv.yaml"
        if not file.is_file():
            return {}
        try:
            content: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigurationError(f"The openenv.yaml of project '{self.folder}' cannot be read: {error}") from error
        return cast("dict[str, Any]", content) if isinstance(content, dict) else {}
