"""What a session answers to each text message of the OpenEnv protocol. One reply for each request, in order."""

from __future__ import annotations

import logging

from openenv_trl.errors import OpenEnvError
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.server.tool_rpc import answer_rpc
from openenv_trl.types import Observation
from openenv_trl.wire.faults import Fault, WSErrorCode, fault_of
from openenv_trl.wire.frames import Request, encode_reply, parse_request
from openenv_trl.wire.observations import has_finite_reward, serialize_observation

logger = logging.getLogger("openenv_trl.server")

CARRIED_OUT = {"step": "step was taken", "reset": "reset was done"}
"""How errors tell of a call that was carried out."""


async def answer(session: HostedSession, text: str) -> bytes | None:
    """Return the reply to a text message; None where it asks for the end of the session."""
    request = parse_request(text)
    if isinstance(request, Fault):
        return request.encode()
    if request.type == "close":
        return None
    try:
        return await _reply(session, request)
    except OpenEnvError as error:
        return fault_of(error).encode()


async def _reply(session: HostedSession, request: Request) -> bytes:
    if request.type == "step":
        return _observation_frame(session, await session.step(request.data), "step")
    if request.type == "reset":
        return _observation_frame(session, await session.reset(request.data), "reset")
    if request.type == "state":
        try:
            return encode_reply("state", await session.state())
        except TypeError as error:
            return unsendable("state was read", error, session.about("state")).encode()
    return encode_reply("mcp", await answer_rpc(session, request.data))


def _observation_frame(session: HostedSession, observation: Observation, call: str) -> bytes:
    if not has_finite_reward(observation):
        text = "Session %s: the reward is %s; it is sent as null"
        logger.warning(text, session.session_id, observation.reward, extra=session.about(call))
    try:
        return encode_reply("observation", serialize_observation(observation))
    except Exception as error:  # boundary: pydantic serializers are the environment author's code
        return unsendable(CARRIED_OUT[call], error, session.about(call)).encode()


def unsendable(what: str, error: Exception, about: dict[str, str]) -> Fault:
    """Return the fault of a call that was carried out, and whose result cannot be sent.

    Args:
        what: What was carried out.
        error: Why its result cannot be sent.
        about: The ``extra`` of the log's record.
    """
    text = f"The {what}, but its result cannot be sent: {error}. The fault is the environment's."
    logger.error("%s", text, extra=about)
    return Fault(text, WSErrorCode.EXECUTION_ERROR.value)


def too_long(
    found_bytes: int, allowed_bytes: int, about: dict[str, str], whose_limit: str = "the server's max_message_bytes"
) -> Fault:
    """Return the fault of a call that was carried out, and whose result is longer than a message may be."""
    text = (
        f"The call was carried out, but its result cannot be sent: it has {found_bytes} bytes, and a message may have "
        f"{allowed_bytes} ({whose_limit})."
    )
    logger.warning("%s", text, extra=about)
    return Fault(text, WSErrorCode.EXECUTION_ERROR.value)
