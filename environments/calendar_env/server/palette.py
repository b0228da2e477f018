"""The colours that calendars and events can have.

Source: ``colors.get`` of the Google Calendar API v3, for numbers and values; the names are those of its web page.
"""

from __future__ import annotations

_FOREGROUND = "#1d1d1d"

EVENT_COLORS = {
    "1": ("#a4bdfc", "Lavender"),
    "2": ("#7ae7bf", "Sage"),
    "3": ("#dbadff", "Grape"),
    "4": ("#ff887c", "Flamingo"),
    "5": ("#fbd75b", "Banana"),
    "6": ("#ffb878", "Tangerine"),
    "7": ("#46d6db", "Peacock"),
    "8": ("#e1e1e1", "Graphite"),
    "9": ("#5484ed", "Blueberry"),
    "10": ("#51b749", "Basil"),
    "11": ("#dc2127", "Tomato"),
}
"""Background and name of each colour of events, by ``colorId``."""

CALENDAR_COLORS = dict(
    zip(
        map(str, range(1, 25)),
        (
            *("#ac725e", "#d06b64", "#f83a22", "#fa573c", "#ff7537", "#ffad46", "#42d692", "#16a765"),
            *("#7bd148", "#b3dc6c", "#fbe983", "#fad165", "#92e1c0", "#9fe1e7", "#9fc6e7", "#4986e7"),
            *("#9a9cff", "#b99aff", "#c2c2c2", "#cabdbf", "#cca6ac", "#f691b2", "#cd74e6", "#a47ae2"),
        ),
        strict=True,
    )
)
"""Background of each colour of calendars, by ``colorId``."""


def palette() -> dict[str, dict[str, dict[str, str]]]:
    """All colours, as the API shows them, with the names of those of events."""
    return {
        "calendar": {
            number: {"background": color, "foreground": _FOREGROUND} for number, color in CALENDAR_COLORS.items()
        },
        "event": {
            number: {"background": color, "foreground": _FOREGROUND, "name": name}
            for number, (color, name) in EVENT_COLORS.items()
        },
    }
