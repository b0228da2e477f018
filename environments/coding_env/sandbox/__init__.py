"""A sandbox for Python: interpreters of their own, each behind as many layers as the system has."""
