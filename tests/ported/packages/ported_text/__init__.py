"""A game of words, with asynchronous hooks, a rubric, a transform and tasks, written for the public package."""

from .client import TextEnv
from .models import TextAction, TextObservation

__all__ = ["TextAction", "TextEnv", "TextObservation"]
