"""Git addresses as pip and uv write them: ``git+https://host/repository@revision#subdirectory=folder``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import parse_qsl

_PREFIX = "git+"
# Git has transports that run a command of the address's own (``ext::``): only those that fetch are allowed.
TRANSPORTS = ("https", "http", "ssh", "git", "file")


@dataclass(frozen=True)
class GitAddress:
    """One project in a git repository."""

    url: str
    """The repository, as git takes it."""
    revision: str = ""
    """A branch, a tag or a commit; empty for the repository's default branch."""
    subdirectory: str = ""
    """The project's folder in it; empty for the top."""

    @classmethod
    def of(cls, project: str) -> GitAddress | None:
        """Read an address; None where it is none, but a folder.

        Raises:
            ValueError: It cannot be used; the text says why.
        """
        if not project.startswith(_PREFIX):
            if "://" in project:
                raise ValueError(f"'{without_secrets(project)}' is no folder: a git address begins with {_PREFIX}https")
            return None
        address, _, fragment = project.removeprefix(_PREFIX).partition("#")
        transport, separator, rest = address.partition("://")
        if not separator or transport not in TRANSPORTS:
            raise ValueError(
                f"'{without_secrets(project)}' is no git address: git+ and one of {', '.join(TRANSPORTS)} begin one"
            )
        host, slash, path = rest.partition("/")  # an @ before the path belongs to a user's name
        path, _, revision = path.rpartition("@") if "@" in path else (path, "", "")
        options = dict(parse_qsl(fragment, keep_blank_values=True))
        subdirectory = options.pop("subdirectory", "")
        options.pop("egg", None)
        folder = PurePosixPath(subdirectory)
        if options or (fragment and not parse_qsl(fragment, keep_blank_values=True)):
            raise ValueError(f"'#{fragment}' in the git address: only #subdirectory=folder is known")
        if folder.is_absolute() or ".." in folder.parts:
            raise ValueError(f"subdirectory '{subdirectory}' leads out of the repository")
        if not path or revision.startswith("-") or rest.startswith("-"):
            raise ValueError(f"'{without_secrets(project)}' is no git address: it names no repository")
        return cls(f"{transport}://{host}{slash}{path}", revision, subdirectory)

    @property
    def name(self) -> str:
        """What the project is called: its folder, or its repository."""
        last = PurePosixPath(self.subdirectory or self.url).name
        return last.removesuffix(".git") or "project"

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{without_secrets(self.url)}{revision}"


def without_secrets(text: str) -> str:
    """Return the text with user names and passwords in its addresses left out."""
    return re.sub(r"://[^/@\s'\"]+@", "://***@", text)
