"""Dates, times and lists as people write them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def say_day(rng: random.Random, day: date) -> str:
    """A day, always with its date, so that nobody can take it for another."""
    return rng.choice(
        (
            f"{day:%A}, {day.day} {day:%B}",
            f"{day:%A} {day.day} {day:%B %Y}",
            f"{day:%a} {day.day} {day:%b}",
            f"{day.isoformat()}",
            f"{day:%B} {day.day} ({day:%A})",
        )
    )


def say_clock(rng: random.Random, clock: str) -> str:
    """A time of day; "HH:MM" in."""
    hour, minute = map(int, clock.split(":"))
    half = "am" if hour < 12 else "pm"
    twelve = (hour - 1) % 12 + 1
    short = f"{twelve} {half}" if minute == 0 else f"{twelve}:{minute:02d} {half}"
    return rng.choice((clock, clock, short))


def say_length(rng: random.Random, minutes: int) -> str:
    """A length of time."""
    words = {15: "a quarter of an hour", 30: "half an hour", 60: "an hour", 90: "an hour and a half", 120: "two hours"}
    return rng.choice((f"{minutes} minutes", words.get(minutes, f"{minutes} minutes")))


def say_list(items: Sequence[str]) -> str:
    """Items with commas and an "and"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
