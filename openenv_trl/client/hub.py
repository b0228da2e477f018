"""Where an environment of the Hugging Face Hub is reached: its Space's address and image. The Hub is not asked."""

from __future__ import annotations

import re

from openenv_trl.errors import ConfigurationError


def repository_of(name: str) -> str | None:
    """Return the repository that a name or address of the Hub stands for, or None where it is a plain name.

    Raises:
        ConfigurationError: It looks like one of the Hub, but names no repository.
    """
    if "/" not in name and "huggingface.co" not in name:
        return None
    path = re.sub(r"^(https?://)?(www\.)?(huggingface\.co/)?(spaces/)?", "", name.strip()).strip("/")
    parts = path.split("/")
    if len(parts) < 2 or not all(parts[:2]):
        raise ConfigurationError(f"'{name}' is no repository of the Hub: write it as owner/name.")
    return "/".join(parts[:2])


def space_url(repository: str) -> str:
    """Return the address of the repository's running Space."""
    return f"https://{_subdomain(repository)}.hf.space"


def space_image(repository: str, tag: str = "latest") -> str:
    """Return the name of the image that the repository's Space runs."""
    return f"registry.hf.space/{_subdomain(repository)}:{tag}"


def _subdomain(repository: str) -> str:
    return re.sub(r"[^a-z0-9]", "-", repository.lower())
