"""What the tests of the package and of its environments share."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine and its other work, and nothing about a promise.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# A run in the background of a script ignores interrupts, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
