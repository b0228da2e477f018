"""Makes ``python -m openenv_trl.cli`` the same as ``openenv-trl``."""

from openenv_trl.cli import main

if __name__ == "__main__":  # and not in a worker of a training, which imports this file again
    main()
