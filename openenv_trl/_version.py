"""The package's version, read by the build and by ``openenv_trl.__version__``."""

__version__ = "0.1.0"
