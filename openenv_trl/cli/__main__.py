"""Makes ``python -m openenv_trl.cli`` the same as ``openenv-trl``."""

from openenv_trl.cli import main

main()
