"""Which TRL the adapters to its loop were made for."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from openenv_trl.errors import ConfigurationError

SUPPORTED = ((1, 15), (1, 17))
"""From the first, and below the second. Unsloth allows 1.15; 1.16 tells its parser of tool calls the tools as well."""


def check_trl_version() -> None:
    """Check that the TRL installed is one whose loop is known.

    Raises:
        ConfigurationError: It is another, or there is none; the text says what to install.
    """
    try:
        installed = version("trl")
    except PackageNotFoundError:
        installed = ""
    numbers = tuple(int(part) for part in installed.split(".")[:2] if part.isdigit())
    if not SUPPORTED[0] <= numbers < SUPPORTED[1]:
        found = f"trl {installed} is installed" if installed else "trl is not installed"
        raise ConfigurationError(
            f"{found}, and this package fits the training loop of trl>=1.15,<1.17. Run: pip install 'trl>=1.15,<1.17'"
        )
