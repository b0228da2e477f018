"""Waits for sessions to start where the system is short of processes or memory, and says so where they do not.

Code that never ran has failed at nothing: whoever asks here gets a session that answers, or an error, and no reply that
could be taken for what the code did.
"""

from __future__ import annotations

import time
from typing import Any

import anyio

from coding_env.sandbox.launcher import Sandbox
from coding_env.sandbox.session import Reply, SandboxSession
from openenv_trl.errors import EnvironmentExecutionError

START_TIMEOUT_S = 20.0
"""Seconds for a session to start, all tries together: sessions that are being judged end meanwhile."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


async def started_session(sandbox: Sandbox, operation: dict[str, Any], timeout_s: float) -> SandboxSession:
    """Return a session that nobody has used, once it has done an operation.

    Args:
        sandbox: Where it comes from.
        operation: What it is asked first; nothing that runs the agent's code.
        timeout_s: Seconds for that.

    Raises:
        EnvironmentExecutionError: None could be started.
    """
    wait = _Wait()
    while True:
        session = sandbox.take()
        try:
            reply = await session.request(operation, timeout_s)
            if reply.data is not None:
                return session
        except BaseException:
            session.close()
            raise
        session.close()
        await wait.again(reply)


async def request_of_started(session: SandboxSession, operation: dict[str, Any], timeout_s: float) -> Reply:
    """Make a request of a session, again where its new worker could not be started.

    Raises:
        EnvironmentExecutionError: Its worker could not be started, so that nothing was done.
    """
    wait = _Wait()
    while True:
        reply = await session.request(operation, timeout_s)
        if not (reply.unstarted and session.usable):
            return reply
        await wait.again(reply)


class _Wait:
    def __init__(self) -> None:
        self._deadline = time.monotonic() + START_TIMEOUT_S
        self._pause_s = _PAUSE_S

    async def again(self, reply: Reply) -> None:
        """Wait before another try; raises where the time for that is up."""
        if time.monotonic() > self._deadline:
            raise EnvironmentExecutionError(
                f"No session of the sandbox can be started: {reply.failure or 'its process ended'} Nothing was run or "
                "judged. The system is short of processes or memory: allow the container more (--pids-limit, --memory),"
                " or fewer sessions (MAX_CONCURRENT_ENVS) or gradings (CODING_CONCURRENT_GRADINGS) at once.",
                phase="step",
            )
        await anyio.sleep(self._pause_s)
        self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 1.5)
