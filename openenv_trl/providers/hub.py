"""Where an environment of the Hugging Face Hub is: its Space's address, image and code. The Hub is not asked."""

from __future__ import annotations

import os
import re

from openenv_trl.errors import ConfigurationError

ENDPOINT_VARIABLE = "HF_ENDPOINT"
TOKEN_VARIABLE = "HF_TOKEN"


def repository_of(name: str) -> str | None:
    """Return the repository that a name or address of the Hub stands for, or None where it is a plain name.

    Raises:
        ConfigurationError: It looks like one of the Hub, but names no repository.
    """
    if "/" not in name and "huggingface.co" not in name:
        return None
    path = re.sub(r"^(https?://)?(www\.)?(huggingface\.co/)?(spaces/)?", "", name.strip()).strip("/")
    parts = path.split("/")
    if len(parts) < 2 or not all(re.fullmatch(r"[A-Za-z0-9][\w.-]*", part, re.ASCII) for part in parts[:2]):
        raise ConfigurationError(f"'{name}' is no repository of the Hub: write it as owner/name.")
    return "/".join(parts[:2])


def space_url(repository: str) -> str:
    """Return the address of the repository's running Space."""
    return f"https://{_subdomain(repository)}.hf.space"


def space_image(repository: str, tag: str = "latest") -> str:
    """Return the name of the image that the repository's Space runs."""
    return f"registry.hf.space/{_subdomain(repository)}:{tag}"


def space_project(repository: str) -> str:
    """Return the git address of the repository's code, as pip and uv write one."""
    return f"git+{space_page(repository)}"


def space_page(repository: str) -> str:
    """Return the address of the repository's page."""
    return f"{hub_endpoint()}/spaces/{repository}"


def hub_endpoint() -> str:
    """Return the Hub's address: what HF_ENDPOINT says, as other tools take it."""
    return os.environ.get(ENDPOINT_VARIABLE, "").strip().rstrip("/") or "https://huggingface.co"


def hub_token() -> str | None:
    """Return the user's token: HF_TOKEN, or the one that was logged in with; None where there is neither."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if token:
        return token
    try:
        import huggingface_hub
    except ImportError:
        return None
    return huggingface_hub.get_token()


def _subdomain(repository: str) -> str:
    return re.sub(r"[^a-z0-9]", "-", repository.lower())
