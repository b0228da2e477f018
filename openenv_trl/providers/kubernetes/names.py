"""Names and labels as Kubernetes allows them.

A name that does not fit is cut, and gets a hash of the whole, so that two long names do not become one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from openenv_trl.errors import ConfigurationError

LONGEST_LABEL = 63
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def _fitted(text: str, kept: str, longest: int) -> str:
    """The kept characters; where they were too many, a hash of the whole text in place of the end."""
    if len(kept) <= longest:
        return kept
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{kept[: longest - 9].rstrip('-._')}-{digest}"


def dns_label(text: str, longest: int = LONGEST_LABEL) -> str:
    """A name for an object (RFC 1123 label): lower-case letters, digits and hyphens, beginning with a letter.

    Args:
        text: What the name is made of.
        longest: Characters at most.
    """
    kept = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not kept or not kept[0].isalpha():
        kept = f"env-{kept}".rstrip("-")
    return _fitted(text, kept, longest)


def object_name(name: str, token: str) -> str:
    """The name of a replica's objects: the replica's own, and a token that no other has.

    A pod's name adds six characters to that of its Job, and all of it is to stay a label.
    """
    return f"{dns_label(name, LONGEST_LABEL - 7 - len(token))}-{token}"


def label_value(text: str) -> str:
    """A label's value that stands for the text: at most 63 letters, digits, dots, hyphens and underscores."""
    if _LABEL_VALUE.fullmatch(text):
        return text
    return _fitted(text, re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._"), LONGEST_LABEL)


def label_values(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels of our own, each value as it may be."""
    return {key: label_value(value) for key, value in labels.items()}


def check_labels(labels: Mapping[str, str]) -> None:
    """Look at labels that somebody wrote; they are not changed, because somebody selects by them.

    Raises:
        ConfigurationError: Kubernetes would refuse one.
    """
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        if not _LABEL_NAME.fullmatch(name) or (slash and not _LABEL_PREFIX.fullmatch(prefix)):
            raise ConfigurationError(
                f"labels: Kubernetes takes no label called {key!r}. Write at most 63 letters, digits, '.', '-' or '_', "
                "with a DNS name and '/' before them where you want one."
            )
        if not _LABEL_VALUE.fullmatch(value):
            raise ConfigurationError(
                f"labels: Kubernetes takes no label with the value {value!r} ({key}). Write at most 63 letters, "
                "digits, '.', '-' or '_', or put it under annotations, which take any text."
            )
