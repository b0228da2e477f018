"""Writes ``native_vectors.json``: each kind of frame of the native wire, as bytes and as values.

Run it when the wire changes on purpose: ``python tests/wire/make_native_vectors.py``. The values are JSON, with
``{"$bytes": base64}``, ``{"$array": [dtype, shape, base64]}``, ``{"$integer": digits}``, ``{"$float": "nan"}`` for what
JSON cannot say.
"""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from openenv_trl.wire import native_frames as frames
from openenv_trl.wire.faults import Fault
from openenv_trl.wire.native_codec import pack

VECTORS = Path(__file__).with_name("native_vectors.json")


def vectors() -> list[tuple[str, str, bytes, Any]]:
    """Return what is in the file: name, sender, a frame's bytes, and its values."""
    screen = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    fault = Fault("Invalid message", "VALIDATION_ERROR", {"errors": [{"type": "missing", "loc": ["move"]}]})
    made: list[tuple[str, str, bytes]] = [
        ("greeting of a client", "client", frames.encode_greeting(104_857_600, software="openenv-trl")),
        (
            "greeting of a server",
            "server",
            frames.encode_greeting(104_857_600, resume_s=30.0, worker=None, workers=1, software="openenv-trl"),
        ),
        ("open", "client", frames.encode_request(frames.OPEN, 1, 1, {})),
        ("open, waiting for a slot", "client", frames.encode_request(frames.OPEN, 300, 1, {"wait_ms": 5000})),
        ("reset", "client", frames.encode_request(frames.RESET, 1, 2, {"seed": 7})),
        ("step with a deadline", "client", frames.encode_request(frames.STEP, 1, 3, {"move": "hit"}, 60.0)),
        ("step with bytes", "client", frames.encode_request(frames.STEP, 1, 4, {"data": b"\x00\xff"})),
        ("state", "client", frames.encode_request(frames.STATE, 1, 5)),
        ("state with a deadline", "client", frames.encode_request(frames.STATE, 1, 5, None, 1.5)),
        (
            "rpc",
            "client",
            frames.encode_request(frames.RPC, 1, 6, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}),
        ),
        ("close", "client", frames.encode_request(frames.CLOSE, 1, 7)),
        ("cancel", "client", frames.encode_request(frames.CANCEL, 1, 3)),
        ("resume", "client", frames.encode_request(frames.RESUME, 1, 3, {"session_id": "a1b2", "token": "c3d4"})),
        (
            "observation",
            "server",
            pack([frames.OBSERVATION, 1, 3, {"metadata": {}, "total": 17}, 0.0, False]),
        ),
        (
            "observation with an array and a reward that is no number",
            "server",
            pack([frames.OBSERVATION, 1, 3, {"metadata": {}, "screen": screen}, math.nan, True]),
        ),
        ("state reply", "server", pack([frames.STATE_REPLY, 1, 5, {"episode_id": "e", "step_count": 2**70}])),
        ("rpc reply", "server", pack([frames.RPC_REPLY, 1, 6, {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}])),
        ("opened", "server", pack([frames.OPENED, 1, 1, {"session_id": "a1b2", "token": "c3d4"}])),
        ("closed", "server", pack([frames.CLOSED, 1, 7])),
        ("error", "server", frames.encode_error(1, 3, fault)),
    ]
    return [(name, sender, frame, described(frames.unpack(frame))) for name, sender, frame in made]


def described(value: Any) -> Any:
    """Return the value as JSON can say it."""
    if isinstance(value, dict):
        return {key: described(item) for key, item in value.items()}
    if isinstance(value, list):
        return [described(item) for item in value]
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        return {"$array": [value.dtype.str, list(value.shape), base64.b64encode(value.tobytes()).decode()]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return {"$integer": str(value)}
    return value


def main() -> None:
    """Write the file."""
    lines = [
        json.dumps({"name": name, "sender": sender, "hex": frame.hex(), "frame": value})
        for name, sender, frame, value in vectors()
    ]
    VECTORS.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
