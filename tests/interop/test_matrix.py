"""Every kind of client of either package, on the servers of either: each feature gives what it should.

Where the public package's client does less (it loses the fields of a refusal, it takes no argument called ``name``, it
lists no tools at all where one has no description), `THEIR_CLIENT` says what it gives instead.
"""

from __future__ import annotations

from typing import Any

import pytest

READY = {"echoed": "ready seed=7 level=3", "n": 0, "reward": None, "done": False}
HI = {"echoed": "hi", "n": 2, "reward": 1.5, "done": False}
END = {"echoed": "end", "n": 2, "reward": 1.5, "done": True}
TOOLS = [
    ["add", "Add two numbers.", ["a", "b"]],
    ["count", "", []],
    ["fail", "Fail.", []],
    ["greet", "Greet.", ["name"]],
]

PROBE_FEATURES: dict[str, Any] = {
    "episode": {"reset": READY, "steps": [HI, END], "state": {"episode_id": "ep", "step_count": 2, "total": 0}},
    "asynchronous environment": {
        "reset": {"echoed": "areset seed=1 kw=[]", "n": 0, "reward": None, "done": False},
        "step": {"echoed": "async:x", "n": 0, "reward": 2, "done": False},
    },
    "production mode": {"echoed": "x", "n": 0, "reward": 1.5, "done": False},
    "validation error": {"code": "VALIDATION_ERROR", "fields": [["message"]], "then": "still"},
    "execution error": {
        "code": "EXECUTION_ERROR",
        "says why": True,
        "state": {"episode_id": "ep", "step_count": 1, "total": 0},
    },
    "capacity": {"refused": "CAPACITY_REACHED", "1/1": True, "after close": "none"},
    "failed factory": {"code": "FACTORY_ERROR", "names it": True},
    "two sessions": [1, 0],
}
TOOL_FEATURES: dict[str, Any] = {
    "tools listed": {"tools": TOOLS, "has": [True, False]},
    "tools called": [3, {"calls": 2}, {"calls": 3}],
    "tools failed": {
        "unknown": "tool_not_found",
        "raises": "execution_error",
        "wrong argument": "invalid_args",
        "missing argument": "invalid_args",
        "then": 2,
    },
    "argument called name": "hello ann",
    "tool steps": {
        "reset": [0.0, {"status": "ready"}],
        "listed": 4,
        "called": ["add", 3, None],
        "failed": ["fly", None, "tool_not_found"],
        "state": ["ep", 3],
    },
    "tools capacity": "free again",
}
THEIR_CLIENT: dict[tuple[str, str], Any] = {
    ("*", "validation error"): {"code": "VALIDATION_ERROR", "fields": [], "then": "still"},
    ("*", "tools failed"): dict.fromkeys(("unknown", "raises", "wrong argument", "missing argument"), "failed")
    | {"then": 2},
    ("*", "argument called name"): "TypeError",
    ("theirs", "tools listed"): {"tools": [], "has": [False, False]},
}

KINDS = {"theirs": ("async", "sync"), "ours": ("async", "sync", "async, OpenEnv wire")}
CELLS = [
    (client, f"{what} {how}", server, feature)
    for server in ("theirs", "ours")
    for client in ("theirs", "ours")
    for what, features in (("typed", PROBE_FEATURES), ("generic", PROBE_FEATURES), ("tools", TOOL_FEATURES))
    for how in KINDS[client]
    for feature in features
]


@pytest.mark.parametrize(("client", "kind", "server", "feature"), CELLS, ids=[" - ".join(cell) for cell in CELLS])
def test_every_client_on_every_server(
    client: str, kind: str, server: str, feature: str, seen: Any, matrix: dict[tuple[str, str, str, str], str]
) -> None:
    expected = whole = {**PROBE_FEATURES, **TOOL_FEATURES}[feature]
    if client == "theirs":
        for whose in ("*", server):
            expected = THEIR_CLIENT.get((whose, feature), expected)
    found = seen[client][server][kind][feature]
    matrix[client, kind, server, feature] = "ok" if found == whole else "ok*" if found == expected else "FAIL"
    assert found == expected
