"""The families of tasks, one a module. Each has ``draft(rng, level)``."""
