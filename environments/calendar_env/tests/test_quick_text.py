"""One line of text becomes the event that it says, or none."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from calendar_env.server.errors import CalendarError
from calendar_env.server.quick_text import read_quick_text

NOW = datetime(2026, 10, 15, 8)  # a Thursday


@pytest.mark.parametrize(
    ("text", "title", "start", "minutes"),
    [
        ("Sync on 2026-10-20 15:00-16:00", "Sync", "2026-10-20T15:00", 60),
        ("Sync tomorrow 3pm-4pm", "Sync", "2026-10-16T15:00", 60),
        ("Sync tomorrow from 3:30 pm to 17:00", "Sync", "2026-10-16T15:30", 90),
        ("Phase 2 review on 20 October at 15:00", "Phase 2 review", "2026-10-20T15:00", None),
        ("Lunch with Ann on 5 March at 12:30", "Lunch with Ann", "2027-03-05T12:30", None),
        ("Lunch on 5 Mar 2027 at 12:30 for 45 minutes", "Lunch", "2027-03-05T12:30", 45),
        ("Leap day on 29 February at 9:00 for 1.5 hours", "Leap day", "2028-02-29T09:00", 90),
        ("Sync on Thursday at 9:00", "Sync", "2026-10-22T09:00", None),
        ("Sync today at 12am", None, None, None),
        ("Sync today at 8pm", "Sync", "2026-10-15T20:00", None),
    ],
)
def test_a_line_means_what_a_reader_takes_it_for(
    text: str, title: str | None, start: str | None, minutes: int | None
) -> None:
    if title is None:
        with pytest.raises(CalendarError, match="is over"):
            read_quick_text(text, NOW)
        return
    read = read_quick_text(text, NOW)
    assert (read.title, f"{read.start:%Y-%m-%dT%H:%M}") == (title, start)
    length = read.length if read.end is None else read.end - read.start
    assert length == (None if minutes is None else timedelta(minutes=minutes))


@pytest.mark.parametrize(
    "text",
    [
        "Sync on 2026-10-20 at 15:00 for -5 hours",
        "Sync on 2026-10-20 at 15:00 with Bob",
        "Sync on 2026-10-20 at 15:00 for 0 minutes",
        "Sync on 2026-10-14 at 15:00",
        "Sync today at 07:00",
        "Sync on friday from 15:00 to 14:00",
        "Sync on 2026-02-30 at 9:00",
        "Sync on 30 February at 9:00",
        "Sync on friday at 25:00",
        "Sync on friday at 13pm",
        "Sync at 15:00 on friday",
        "Sync on 10/11/2026 at 9:00",
        "May report on 3 May at 9:00",
        "Sync today or tomorrow at 9:00",
        "on 5 March at 12:30",
        "Sync on friday at ٣pm",
        "",
        "x " * 600 + "on friday at 9:00",
    ],
)
def test_what_is_not_understood_to_the_last_word_is_refused(text: str) -> None:
    with pytest.raises(CalendarError, match="events_insert") as caught:
        read_quick_text(text, NOW)
    assert caught.value.code == 400


def test_the_refusal_tells_how_to_write_it_and_that_can_be_read() -> None:
    with pytest.raises(CalendarError) as caught:
        read_quick_text("Lunch", NOW)
    example = caught.value.message.partition('such as "')[2].partition('"')[0]
    assert read_quick_text(example, datetime(2026, 1, 1)).title == "Lunch"
