"""A server's lease: what of it needs no server."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError
from openenv_trl.server.lease import LeaseClock, LeaseRecord, LeaseTerms, take_lease

TERMS = LeaseTerms(lease_s=10.0, start_s=100.0, token="secret")


def ticks_until_over(clock: LeaseClock, passed_s: float) -> int:
    ticks = 1
    while not clock.pass_time(passed_s):
        ticks += 1
    return ticks


def test_the_lease_is_counted_from_when_the_server_serves():
    clock = LeaseClock(TERMS)
    assert not any(clock.pass_time(1.0) for _ in range(90))
    clock.renew()
    assert ticks_until_over(clock, 1.0) == 10


def test_a_server_that_never_serves_ends_after_its_time_to_start():
    assert ticks_until_over(LeaseClock(TERMS), 1.0) == 100


@given(st.lists(st.floats(min_value=0.0, max_value=9.9), max_size=50))
def test_a_lease_that_is_renewed_in_time_never_ends(pauses):
    clock = LeaseClock(TERMS)
    clock.renew()
    for pause in pauses:
        assert not clock.pass_time(pause)
        clock.renew()


def test_time_in_which_the_process_stood_still_does_not_end_the_lease():
    clock = LeaseClock(TERMS)
    clock.renew()
    assert not clock.pass_time(3600.0)
    assert clock.left_s >= TERMS.lease_s / 2


def test_only_the_token_opens():
    assert TERMS.opens("secret")
    assert not any(TERMS.opens(wrong) for wrong in ("", "secre", "secret ", "Secret", "sécret"))


def test_every_renewal_is_seen_by_each_process_that_has_the_record():
    record = LeaseRecord.anonymous()
    assert record.renewed_at == 0
    record.touch()
    assert LeaseRecord(record.fd).renewed_at == record.renewed_at != 0


@pytest.mark.parametrize("seconds", ["", "soon", "0", "-1", "nan", "inf"])
def test_seconds_that_are_none_are_refused_with_the_variables_name(seconds):
    with pytest.raises(ConfigurationError, match="OPENENV_TRL_LEASE_S="):
        take_lease({"OPENENV_TRL_LEASE_S": seconds, "OPENENV_TRL_LEASE_TOKEN": "secret"})


def test_a_lease_that_nobody_could_renew_is_refused():
    with pytest.raises(ConfigurationError, match="OPENENV_TRL_LEASE_TOKEN is not"):
        take_lease({"OPENENV_TRL_LEASE_S": "60"})


def test_the_file_of_a_named_record_goes_with_the_last_that_uses_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / "openenv-trl-lease-of-a-killed-server").touch()
    first, second = (LeaseRecord.named("secret", 1) for _ in range(2))
    assert len(os.listdir(tmp_path)) == 1
    first.leave()
    assert len(os.listdir(tmp_path)) == 1
    os.close(first.fd)
    second.leave()
    assert os.listdir(tmp_path) == []


def test_the_record_holds_no_secret_and_the_first_one_stays():
    record = LeaseRecord.anonymous()
    assert record.secret() == b""
    assert record.keep_secret("the-owners")
    assert record.keep_secret("the-owners")
    assert not record.keep_secret("anothers")
    assert b"the-owners" not in os.pread(record.fd, 1000, 0)
