"""A walk on a grid, by typed actions, written for the public package."""

from .client import GridEnv
from .models import GridAction, GridObservation, GridState, Move

__all__ = ["GridAction", "GridEnv", "GridObservation", "GridState", "Move"]
