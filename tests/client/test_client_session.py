from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.client.session import ClientSession, ClientState
from openenv_trl.errors import OpenEnvError, SessionLostError, SessionStateError


def _open() -> ClientSession:
    session = ClientSession("http://h:1")
    session.connecting()
    session.connected()
    return session


def test_calls_follow_each_other() -> None:
    session = _open()
    for call in ("reset", "step", "step"):
        session.begin(call)
        session.replied()
    assert session.state is ClientState.OPEN


def test_a_failed_connect_may_be_tried_again() -> None:
    session = ClientSession("http://h:1")
    session.connecting()
    session.connect_failed()
    session.connecting()
    session.connected()
    assert session.state is ClientState.OPEN


def test_a_reason_that_is_a_sentence_ends_in_one_full_stop() -> None:
    session = _open()
    session.begin("step")
    assert str(session.lost("The server ended it.")).endswith("is lost: The server ended it.")
    with pytest.raises(SessionLostError, match=r"was lost \(The server ended it\), and"):
        session.begin("step")


def test_a_lost_session_tells_its_reason_on_every_later_call() -> None:
    session = _open()
    session.begin("step")
    first = session.lost("the server closed it")
    assert "is lost: the server closed it" in str(first)
    session.lost("something later")
    for call in ("step", "reset"):
        with pytest.raises(SessionLostError, match=r"Cannot .* was lost \(the server closed it\)"):
            session.begin(call)
    with pytest.raises(SessionLostError):
        session.connecting()


def test_each_refused_call_says_why() -> None:
    session = ClientSession("http://h:1")
    with pytest.raises(SessionStateError, match=r"not connected; call connect\(\) first"):
        session.begin("step")
    session.connecting()
    with pytest.raises(SessionStateError, match="still connecting"):
        session.begin("step")
    session.connected()
    with pytest.raises(SessionStateError, match="connected already"):
        session.connecting()
    session.begin("reset")
    with pytest.raises(SessionStateError, match="its reset still waits for a reply"):
        session.begin("step")
    session.closed()
    with pytest.raises(SessionStateError, match="the client is closed; make a new one"):
        session.begin("step")


@given(st.lists(st.sampled_from(["connecting", "connected", "connect_failed", "begin", "replied", "lost", "closed"])))
def test_no_order_of_events_revives_a_session_that_ended(events: list[str]) -> None:
    session = ClientSession("http://h:1")
    ended = False
    for event in events:
        argument = {"begin": ["step"], "lost": ["gone"]}.get(event, [])
        with contextlib.suppress(OpenEnvError):
            getattr(session, event)(*argument)
        ended = ended or session.state in (ClientState.LOST, ClientState.CLOSED)
        if ended:
            assert session.state in (ClientState.LOST, ClientState.CLOSED)
            with pytest.raises(OpenEnvError):
                session.begin("step")
