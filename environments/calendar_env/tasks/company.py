"""A made-up company on a Monday morning: its people, teams, offices and rooms, all drawn from a seed.

The week is often one before or after clocks change in Europe, the United States or Australia, since that is where
calendars go wrong. What stands in the calendars is added by `calendar_env.tasks.background` and by the task.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone

from calendar_env.tasks import people as words
from calendar_env.tasks.people import Person, Room
from calendar_env.tasks.world import World, at

CLOCK_CHANGES = tuple(
    date.fromisoformat(day)
    for day in (
        "2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01",
        "2027-03-14", "2027-03-28", "2027-04-04", "2027-10-03", "2027-10-31", "2027-11-07",
    )
)  # fmt: skip
"""Sundays on which clocks change in New York, Berlin and London, or Sydney."""

_WEEKS_BACK, _WEEKS_AHEAD = 4, 26


class Company:
    """The company that a task plays in.

    Args:
        rng: Where everything is drawn from.
        size: How many people it has, at least 6.
        zones: Time zones that must have somebody, the acting user's first; the others are drawn.

    Attributes:
        rng: Where everything is drawn from.
        world: What stands in the calendars.
        domain: The part of addresses after the @.
        me: The acting user.
        others: Everybody else.
        teams: The members of each team, by the team's group address.
        rooms: The rooms, two sites or more.
        now: The time at which the episode plays, in the acting user's zone: a morning from Monday to Wednesday.
    """

    def __init__(self, rng: random.Random, *, size: int = 8, zones: Sequence[str] = ()) -> None:
        self.rng = rng
        monday = self._monday()
        name = rng.choice(words.COMPANIES)
        self.name, self.domain = name, f"{name.lower()}.example"
        first, last = rng.sample(words.FIRST_NAMES, size), rng.sample(words.LAST_NAMES, size)
        teams = rng.sample(sorted(words.TEAMS), 3)
        sites = [*zones, *rng.sample([zone for zone in words.CITIES if zone not in zones], 2)]
        names = [f"{first[index]} {last[index]}" for index in range(size)]
        staff: list[Person] = []
        for index, person in enumerate(names):
            leader = {0: 3, 1: 1, 2: 2}[index % 3]  # the acting user, who is the first, has a manager
            zone = sites[index] if index < max(len(zones), 1) else rng.choice(sites[:3])
            lead = None if leader == index else self._address(names[leader])
            staff.append(self._person(person, teams[index % 3], zone, lead))
        self.me, self.others = staff[0], staff[1:]
        self.people = staff
        self.now = at(monday + timedelta(days=rng.randrange(3)), rng.choice(("07:30", "08:00", "08:15")), self.me.zone)
        origin = datetime(monday.year, monday.month, monday.day, tzinfo=timezone.utc) - timedelta(days=1)
        self.world = World(rng, (origin - timedelta(weeks=_WEEKS_BACK), origin + timedelta(weeks=_WEEKS_AHEAD)))
        for person in staff:
            self.world.person(person)
        self.teams: dict[str, list[Person]] = {}
        for team in teams:
            members = sorted((each for each in staff if each.team == team), key=lambda each: each.manager is not None)
            address = f"{team.lower()}@{self.domain}"
            self.teams[address] = members
            self.world.group(address, [each.email for each in members], f"{team} team")
        self.rooms = self._rooms(sites[:3])
        for room in self.rooms:
            self.world.room(room)
        self._titles = [f"{project} {occasion}" for project in words.PROJECTS for occasion in words.OCCASIONS]
        rng.shuffle(self._titles)

    def title(self) -> str:
        """A title that no other event of this world has."""
        return self._titles.pop()

    def titles(self, count: int) -> list[str]:
        """Titles about projects of different names."""
        found: list[str] = []
        while len(found) < count:
            title = self._titles.pop()
            if title.split()[0] not in {each.split()[0] for each in found}:
                found.append(title)
        return found

    def today(self) -> date:
        """The day on which the episode plays, where the acting user is."""
        return self.now.date()

    def workdays(self, first: int = 1, last: int = 14) -> list[date]:
        """The weekdays from ``first`` to ``last`` days after today."""
        days = (self.today() + timedelta(days=ahead) for ahead in range(first, last + 1))
        return [day for day in days if day.weekday() < 5]

    def monday(self, weeks: int = 1) -> date:
        """The Monday of the week so many weeks after this one."""
        return self.today() - timedelta(days=self.today().weekday()) + timedelta(weeks=weeks)

    def colleagues(self, count: int, *, zone: str | None = None) -> list[Person]:
        """Different people other than the acting user, in that zone if one is given."""
        return self.rng.sample([each for each in self.others if zone in (None, each.zone)], count)

    def clock(self, first: int = 9, last: int = 16) -> str:
        """A full or half hour, from ``first`` o'clock to half past ``last``."""
        return f"{self.rng.randint(first, last):02d}:{self.rng.choice(('00', '30'))}"

    def quiet_slot(
        self, days: Sequence[date], minutes: int, emails: Sequence[str], *, first: int = 9, last: int = 15
    ) -> tuple[date, str]:
        """A day and a time of the acting user's clock at which all of them are free.

        Raises:
            LookupError: There is none.
        """
        zone = self.me.zone
        slots = [
            (day, f"{hour:02d}:{half}") for day in days for hour in range(first, last + 1) for half in ("00", "30")
        ]
        self.rng.shuffle(slots)
        for day, clock in slots:
            start = at(day, clock, zone).astimezone(timezone.utc)
            if self.world.free(emails, start, start + timedelta(minutes=minutes)):
                return day, clock
        raise LookupError(f"Nobody has time: {emails} on {days}.")

    def _monday(self) -> date:
        rng = self.rng
        if rng.random() < 0.6:
            change = rng.choice(CLOCK_CHANGES)
            return change + timedelta(days=1) - timedelta(weeks=rng.randint(1, 3))
        return date(2026, 1, 12) + timedelta(weeks=rng.randrange(90))

    def _person(self, name: str, team: str, zone: str, lead: str | None) -> Person:
        start, end = self.rng.choice((("09:00", "17:00"), ("09:00", "17:00"), ("08:00", "16:00"), ("09:30", "17:30")))
        hours: dict[str, Sequence[str]] = dict.fromkeys(("MO", "TU", "WE", "TH", "FR"), (start, end))
        if self.rng.random() < 0.15:
            hours["FR"] = (start, "14:00")
        title = self.rng.choice(tuple(words.TEAMS[team])) if lead else f"Head of {team}"
        return Person(self._address(name), name, title, team, zone, "employee" if lead else "manager", hours, lead)

    def _address(self, name: str) -> str:
        return f"{name.lower().replace(' ', '.')}@{self.domain}"

    def _rooms(self, sites: Sequence[str]) -> list[Room]:
        rng = self.rng
        names = iter(rng.sample(words.ROOM_NAMES, 9))
        rooms: list[Room] = []
        for index, zone in enumerate(dict.fromkeys((self.me.zone, *sites))):
            sizes = rng.sample((4, 6, 8, 10, 12, 16, 20), 5 if index == 0 else 2)
            for capacity in sizes[: 5 if index == 0 else 2]:
                name = next(names, None)
                if name is None:
                    break
                features = tuple(sorted(rng.sample(words.FEATURES, rng.randint(1, 3))))
                rooms.append(Room(f"room-{name.lower()}@{self.domain}", name, capacity, zone, features))
        return rooms
