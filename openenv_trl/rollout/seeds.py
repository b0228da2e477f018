"""Seeds made of whatever names what they are for."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: object) -> int:
    """A seed of 53 bits from any values, the same in every process and Python version."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 11
