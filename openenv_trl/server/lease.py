"""The lease of a server process: whoever started it renews it, and when nobody does the process ends by itself.

So a server does not outlive an owner that was killed, whatever else was killed with it. A thread keeps the time, so
that an environment which blocks the event loop keeps nothing alive; one that blocks the whole interpreter is ended by a
timer of the interpreter's own. Time in which the process stood still, as in a paused container, does not count; a
process that stood still for longer than its lease and `HARD_S` ends when it goes on.

What renews it is the token of the environment only until the first renewal, which puts the owner's secret in its place.

Without the variable OPENENV_TRL_LEASE_S there is no lease: no thread and no path.
"""

from __future__ import annotations

import contextlib
import faulthandler
import glob
import hashlib
import hmac
import logging
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import MutableMapping
from dataclasses import dataclass

from openenv_trl.errors import ConfigurationError
from openenv_trl.wire.lease import LEASE_START_VARIABLE, LEASE_TOKEN_VARIABLE, LEASE_VARIABLE

logger = logging.getLogger("openenv_trl.server")

HARD_S = 10.0
"""Seconds that an orderly end may take before the process is ended at once."""

_SECOND_SIGNAL_S = 0.5  # the first one begins a drain, which waits for episodes that nobody plays any more
_DEFAULT_START_S = 120.0
_LONGEST_STEP_S = 5.0
_DIGEST_BYTES = 32
_RECORD_PREFIX = "openenv-trl-lease-"


@dataclass(frozen=True)
class LeaseTerms:
    """What the owner asked for."""

    lease_s: float
    """Seconds without a renewal after which the server ends, counted from when it serves."""
    start_s: float
    """Seconds within which it has to serve."""
    token: str
    """What renews it the first time."""

    def opens(self, given: str) -> bool:
        """Whether this is the token; takes the same time for every wrong one."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


class LeaseClock:
    """How much of a lease is left. It owns no clock: it is told how much time has passed.

    Args:
        terms: The lease.
    """

    def __init__(self, terms: LeaseTerms) -> None:
        self.step_s = min(_LONGEST_STEP_S, max(0.05, terms.lease_s / 10))
        """How often it is to be told."""
        self.serving = False
        self._terms = terms
        self.left_s = terms.start_s

    def renew(self) -> None:
        """The server has begun to serve, or its owner has renewed the lease."""
        self.serving = True
        self.left_s = self._terms.lease_s

    def pass_time(self, seconds: float) -> bool:
        """Take note of the time that has passed; True once the lease is over."""
        # A step that took far longer than it should: the process stood still, and could not be renewed.
        self.left_s -= min(seconds, 2 * self.step_s)
        return self.left_s <= 0


class LeaseRecord:
    """When a lease was last renewed, as the time of a file: every process that has the file can renew it.

    Args:
        fd: The file, which this object keeps open.
        path: Where it is, if it has a name.
    """

    def __init__(self, fd: int, path: str | None = None) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def anonymous(cls) -> LeaseRecord:
        """A record of this process, and of those to which it passes the descriptor."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("openenv-trl-lease")
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        os.utime(fd, (0, 0))
        return cls(fd)

    @classmethod
    def named(cls, token: str, parent: int) -> LeaseRecord:
        """The record of all processes of one parent, which start one after the other and share nothing else."""
        import fcntl  # not on Windows

        sweep_records()
        name = f"{_RECORD_PREFIX}{hashlib.sha256(f'{parent} {token}'.encode()).hexdigest()[:24]}"
        path = os.path.join(tempfile.gettempdir(), name)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            # As long as any process holds this lock the file stays; it may have gone just before it was taken.
            fcntl.flock(fd, fcntl.LOCK_SH)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return cls(fd, path)
            os.close(fd)

    def leave(self) -> None:
        """This process has ended its part; where it was the last one, a named record's file goes."""
        if self.path is not None:
            _remove_unused(self.fd, self.path)

    def touch(self) -> None:
        """Renew."""
        os.utime(self.fd)

    def secret(self) -> bytes:
        """The digest of what renews it; empty as long as that is the token."""
        return os.pread(self.fd, _DIGEST_BYTES, 0)

    def keep_secret(self, secret: str) -> bool:
        """Have a secret renew it from now on; False where another one does already."""
        digest = _digest(secret)
        # One write of so few bytes is whole. Were there two at the same time, whoever is not read back has lost.
        if not self.secret():
            os.pwrite(self.fd, digest, 0)
        return hmac.compare_digest(self.secret(), digest)

    @property
    def renewed_at(self) -> int:
        """A number that every renewal changes; 0 before the first."""
        return os.fstat(self.fd).st_mtime_ns


def sweep_records() -> None:
    """Remove the files of named records that no process uses any more, as after a kill."""
    for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"{_RECORD_PREFIX}*")):
        with contextlib.suppress(OSError):  # another user's, or gone
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                _remove_unused(fd, path)
            finally:
                os.close(fd)


def _remove_unused(fd: int, path: str) -> None:
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)


class Lease:
    """The lease of this process.

    Args:
        terms: What the owner asked for.
        record: What this process shares with others of the same server; its own if None.
        watched: Whether this process ends itself. A worker's parent does it for all.
    """

    def __init__(self, terms: LeaseTerms, record: LeaseRecord | None = None, *, watched: bool = True) -> None:
        self.terms = terms
        self._record = record
        self._watched = watched
        self._clock = LeaseClock(terms)
        self._lock = threading.Lock()
        self._watching_pid = 0
        self._serving_pid = 0

    @property
    def record(self) -> LeaseRecord:
        """Where renewals are written down."""
        if self._record is None:
            parent = _server_parent()
            self._record = LeaseRecord.anonymous() if parent is None else LeaseRecord.named(self.terms.token, parent)
        return self._record

    def watch(self) -> None:
        """Keep the time from now on. May be called again."""
        with self._lock:
            if self._watched and self._watching_pid != os.getpid():
                self._watching_pid = os.getpid()
                threading.Thread(target=self._watch, name="lease", daemon=True).start()

    def begin(self) -> None:
        """The server serves: from now on it has to be renewed. May be called again."""
        if self._serving_pid == os.getpid():
            return
        self._serving_pid = os.getpid()
        self.watch()
        with self._lock:
            if self.record.renewed_at == 0:
                self.record.touch()
            if self._watched:
                # At once: the environment may block the interpreter before the watching thread has its next turn.
                self._clock.renew()
                self._arm_timer()

    def renew(self, token: str, secret: str | None = None) -> bool:
        """The owner lives; False where this is not the owner.

        Args:
            token: What the environment said.
            secret: What is to take its place, or has taken it; None of an owner that knows only the token.
        """
        kept = self.record.secret()
        if kept:
            opens = secret is not None and hmac.compare_digest(_digest(secret), kept)
        else:
            opens = self.terms.opens(token) and (not secret or self.record.keep_secret(secret))
        if opens:
            self.record.touch()
        return opens

    def leave(self) -> None:
        """This process serves no more."""
        if self._record is not None:
            self._record.leave()

    def _watch(self) -> None:
        clock, renewed_at, at = self._clock, 0, time.monotonic()
        over = False
        while not over:
            with self._lock:
                self._arm_timer()
            time.sleep(min(clock.step_s, clock.left_s))
            before, at = at, time.monotonic()
            with self._lock:
                latest = self.record.renewed_at
                if latest != renewed_at:
                    renewed_at = latest
                    clock.renew()
                else:
                    over = clock.pass_time(at - before)
        lease_s = f"{self.terms.lease_s:g}"
        if clock.serving:
            _end(f"Nobody has renewed this server's lease for {lease_s} s: its owner has died or cannot reach it")
        else:
            _end(f"The server did not serve within {self.terms.start_s:g} s")

    def _arm_timer(self) -> None:
        # Should the watching thread never have its turn again, this timer, which needs no turn, ends the process.
        faulthandler.dump_traceback_later(self._clock.left_s + HARD_S, exit=True, file=2)


_taken: Lease | None = None


def take_lease(environment: MutableMapping[str, str] | None = None) -> Lease | None:
    """Return this process's lease; None where it has none.

    The variables are taken out, so that what an environment starts does not inherit them. Other processes of the same
    user may still read them, as in ``/proc/1/environ`` of a container; the owner's first renewal, which comes within a
    quarter of the lease once the server can be reached, makes the token worthless. Code within this very process can do
    all that the process can.

    Raises:
        ConfigurationError: The variables cannot be used.
    """
    global _taken
    variables = os.environ if environment is None else environment
    if LEASE_VARIABLE in variables:
        _taken = Lease(_read_terms(variables))
        for name in (LEASE_VARIABLE, LEASE_TOKEN_VARIABLE, LEASE_START_VARIABLE):
            variables.pop(name, None)
    return _taken


def keep_lease(lease: Lease) -> None:
    """Have `take_lease` return this one: a worker's, which its parent gave it."""
    global _taken
    _taken = lease


def _digest(secret: str) -> bytes:
    # Not the secret itself: the record can be read by other processes of the same user.
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _read_terms(variables: MutableMapping[str, str]) -> LeaseTerms:
    lease_s = _seconds(variables, LEASE_VARIABLE, 0.0)
    token = variables.get(LEASE_TOKEN_VARIABLE, "")
    if not token:
        raise ConfigurationError(
            f"{LEASE_VARIABLE} is set, but {LEASE_TOKEN_VARIABLE} is not: nobody could renew the lease. Set both, or "
            "neither."
        )
    return LeaseTerms(lease_s, _seconds(variables, LEASE_START_VARIABLE, _DEFAULT_START_S + lease_s), token)


def _seconds(variables: MutableMapping[str, str], name: str, default: float) -> float:
    text = variables.get(name)
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ConfigurationError(f"{name}={text!r} is no number of seconds: give one above 0, such as 60.")
    return seconds


def _server_parent() -> int | None:
    """The process that starts this one again when it ends, under another server than ours, if there is one."""
    if multiprocessing.parent_process() is not None or "gunicorn" in os.path.basename(sys.argv[0]):
        return os.getppid()
    return None


def _end(why: str) -> None:
    """End the process, and what would start it again: in order if it can, else at once."""
    # First of all, as whatever follows may block: the log too, when nobody reads it.
    faulthandler.dump_traceback_later(HARD_S + 1, exit=True, file=2)
    threading.Thread(target=_end_at_once_after, args=(HARD_S,), name="lease-end", daemon=True).start()
    logger.warning("%s. The server ends.", why)
    parent = _server_parent()
    for target in (parent, os.getpid()):
        if target is not None:
            os.kill(target, signal.SIGTERM)
    time.sleep(_SECOND_SIGNAL_S)
    os.kill(os.getpid(), signal.SIGTERM)


def _end_at_once_after(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(0)  # not a failure that an engine should make good by another start
