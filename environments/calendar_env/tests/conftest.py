"""A small company: Ann and Bob at work, Cara who assists Ann, Zoe of another company, two rooms and a team calendar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from calendar_env.server.errors import CalendarError
from calendar_env.server.service import CalendarService
from calendar_env.server.store import CalendarStore

from openenv_trl.providers import ProcessProvider

ANN, BOB, CARA, ZOE = "ann@acme.example", "bob@acme.example", "cara@acme.example", "zoe@other.example"
ROOM, HALL, TEAM, STAFF = "room@acme.example", "hall@acme.example", "team-calendar", "staff@acme.example"
NOW = datetime(2026, 3, 2, 8, tzinfo=ZoneInfo("Europe/Berlin"))

Refused = Callable[..., CalendarError]
As = Callable[[str], CalendarService]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store() -> CalendarStore:
    store = CalendarStore(id_seed="tests")
    store.add_user(ANN, "Ann Weber", role="manager", title="Head of Design")
    store.add_user(BOB, "Bob Okoro", manager=ANN)
    store.add_user(CARA, "Cara Lind", role="assistant", time_zone="America/New_York")
    store.add_user(ZOE, "Zoe Park")
    store.add_group(STAFF, [ANN, BOB, CARA])
    store.add_acl(ANN, "user", CARA, "writer")
    store.add_room(ROOM, "Elbe", capacity=4, location="2nd floor", features=["screen"])
    store.add_room(HALL, "Rhine", capacity=30, admin=CARA)
    store.add_calendar(TEAM, "Design team", ANN)
    return store


@pytest.fixture
def acting(store: CalendarStore) -> As:
    """``acting(address)``: the service as that user has it."""
    return lambda user: CalendarService(store, user, NOW)


@pytest.fixture
def refused(store: CalendarStore) -> Refused:
    """``refused(call, ...)``: the error that a call is refused with, having changed nothing."""

    def refuse(call: Callable[..., Any], *arguments: Any, **named: Any) -> CalendarError:
        before = store.dump()
        with pytest.raises(CalendarError) as caught:
            call(*arguments, **named)
        assert store.dump() == before
        return caught.value

    return refuse


@pytest.fixture(scope="session")
def calendar_server() -> Iterator[str]:
    with ProcessProvider(str(Path(__file__).resolve().parents[1])) as provider:
        yield provider.replicas[0].base_url


def timed(day: str, start: str, end: str, **fields: Any) -> dict[str, Any]:
    """An event's body, on one day by the calendar's clocks."""
    return {"start": {"dateTime": f"{day}T{start}:00"}, "end": {"dateTime": f"{day}T{end}:00"}, **fields}
