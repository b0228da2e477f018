"""The lease of an environment server, as its owner and the server agree on it: variables, a path, a header.

A server that is started with a lease ends by itself when nobody renews it. ``POST /lease`` with the token renews: 204;
another token: 403. A server without a lease has no such path.

The token stands in the server's environment, where others may read it. So the first renewal puts a secret in its place,
which only the owner's process has: it sends both, and from then on the server takes the secret alone. The owner goes on
to send both, for a server that was started again, and for one that knows of no secret.
"""

LEASE_VARIABLE = "OPENENV_TRL_LEASE_S"
"""Seconds after which a server ends that nobody renews, counted from when it serves."""
LEASE_TOKEN_VARIABLE = "OPENENV_TRL_LEASE_TOKEN"
"""The secret that renews it."""
LEASE_START_VARIABLE = "OPENENV_TRL_LEASE_START_S"
"""Seconds within which the server has to serve, from the start of its process."""
LEASE_PATH = "/lease"
LEASE_HEADER = "x-openenv-lease"
"""The header with the token."""
LEASE_SECRET_HEADER = "x-openenv-lease-secret"
"""The header with the secret that takes the token's place at the first renewal."""
