"""Run one command to its end, as a part of this process: however this process ends, the command ends too.

A launcher that starts others (accelerate, torchrun) passes a signal on to some of them or to none, and SIGKILL to
nobody. So it runs under the same supervisor as a server does, which ends all that is below it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from openenv_trl.providers import supervisor


def run_owned(command: Sequence[str], *, env: Mapping[str, str] | None = None, grace_s: float = 10.0) -> int:
    """Run a command, with this process's output, until it ends; return its exit code, as a shell counts it.

    SIGTERM and SIGHUP to this process end the command first, and all that it started. Ctrl-C does too, and then raises
    KeyboardInterrupt. SIGKILL cannot be waited for: the command is ended right after.

    Args:
        command: The program and its arguments. It reads from no terminal.
        env: Its environment variables; this process's if None.
        grace_s: Seconds between SIGTERM and SIGKILL, when it has to end.
    """
    with open(os.devnull, "wb") as nobody:  # the supervisor's reports; its exit code is enough here
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", supervisor.__file__),
                *(str(os.getpid()), str(grace_s), str(nobody.fileno()), ""),
                *command,
            ],
            stdin=subprocess.PIPE,
            pass_fds=(nobody.fileno(),),
            start_new_session=True,
            env=None if env is None else dict(env),
        )
    assert process.stdin is not None
    with _passed_on(process), process.stdin:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise


@contextmanager
def _passed_on(process: subprocess.Popen[bytes]) -> Generator[None]:
    """For the block, signals that ask this process to stop ask the supervisor instead."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(number: int, _frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
