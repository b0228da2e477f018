"""The page's routes and its socket without a browser: the public package's shapes, and none of its faults."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

Serve = Callable[..., str]
TOKEN = "a-secret-0123456789"


@contextmanager
def socket(address: str, *subprotocols: str, **headers: str) -> Iterator[ClientConnection]:
    url = f"{address.replace('http', 'ws', 1)}/ws/ui"
    with connect(url, subprotocols=subprotocols or None, additional_headers=headers) as open_socket:  # type: ignore[arg-type]
        yield open_socket


def told(connection: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of that type."""
    while True:
        message = json.loads(connection.recv(timeout=120))
        if message["type"] == kind:
            return message


def ask(connection: ClientConnection, kind: str, **fields: Any) -> dict[str, Any]:
    """Send a request and return its reply."""
    connection.send(json.dumps({"type": kind, "id": "mine", **fields}))
    while True:
        message = json.loads(connection.recv(timeout=120))
        if message.get("id") == "mine":
            return message


def test_the_root_leads_to_the_page(serve: Serve) -> None:
    address = serve("blackjack_env")
    for path in ("/", "/web"):
        answer = httpx.get(f"{address}{path}")
        assert (answer.status_code, answer.headers["location"]) == (307, "/web/")
    assert httpx.get(f"{address}/web/nothing.js").status_code == 404
    metadata = httpx.get(f"{address}/web/metadata").json()
    assert metadata["name"] == "blackjack_env"
    assert "# " in metadata["readme_content"]


def test_an_episode_over_http_has_the_public_packages_shapes(serve: Serve) -> None:
    with httpx.Client(base_url=serve("blackjack_env"), timeout=60) as visitor:
        reset = visitor.post("/web/reset", json={"seed": 1})
        assert reset.json()["observation"]["player_cards"] == [9, 10]
        assert {key: reset.json()[key] for key in ("reward", "done")} == {"reward": None, "done": False}
        cookie = reset.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        step = visitor.post("/web/step", json={"action": {"move": "stand"}})
        assert step.json()["done"] is True
        assert visitor.get("/web/state").json()["step_count"] == 1


def test_a_message_is_an_action_of_one_field(serve: Serve) -> None:
    with httpx.Client(base_url=serve("faulty"), timeout=60) as visitor:
        visitor.post("/web/reset")
        answer = visitor.post("/web/step", json={"message": "hello"})
        assert answer.status_code == 422
        assert {tuple(each["loc"]) for each in answer.json()["detail"]} == {("text",), ("message",)}


def test_every_mistake_has_an_answer_in_json_and_the_session_stands(serve: Serve) -> None:
    with httpx.Client(base_url=serve("blackjack_env"), timeout=60) as visitor:
        for method, path in (("POST", "/web/step"), ("GET", "/web/state")):
            answer = visitor.request(method, path, json={"action": {}} if method == "POST" else None)
            assert answer.status_code == 409
            assert "POST /web/reset first" in answer.json()["detail"]
        first = visitor.post("/web/reset", json={"seed": 1}).json()
        for content, status in ((b"{", 422), (b"[]", 422), (b"{}", 422), (b'{"action": 3}', 422)):
            answer = visitor.post("/web/step", content=content)
            assert (answer.status_code, bool(answer.json()["detail"])) == (status, True)
        answer = visitor.post("/web/step", json={"action": {"move": "fly"}})
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["loc"] == ["move"]
        assert visitor.get("/web/state").json()["step_count"] == 0
        assert visitor.post("/web/step", json={"action": {"move": "hit"}}).json()["observation"] != first["observation"]


def test_an_environments_fault_is_told_in_json(serve: Serve) -> None:
    with httpx.Client(base_url=serve("faulty"), timeout=60) as visitor:
        visitor.post("/web/reset")
        answer = visitor.post("/web/step", json={"action": {"text": "raise"}})
        assert answer.status_code == 500
        assert "the dice are gone" in answer.json()["detail"]
        assert visitor.post("/web/step", json={"action": {"text": "on"}}).json()["observation"]["text"] == "step 1: on"


def test_each_cookie_is_a_visitor_within_the_limit(serve: Serve) -> None:
    address = serve("lonely", MAX="1")
    with httpx.Client(base_url=address, timeout=60) as one, httpx.Client(base_url=address, timeout=60) as other:
        first = one.post("/web/reset").json()["observation"]["text"]
        refused = other.post("/web/reset")
        assert refused.status_code == 503
        assert "1/1" in refused.json()["detail"]
        assert httpx.get(f"{address}/capacity").json()["active_sessions"] == 1
        assert one.post("/web/reset").json()["observation"]["text"] == first  # the same environment again
        assert one.post("/web/step", json={"action": {"text": "a"}}).json()["observation"]["text"] == "step 1: a"


def test_no_environment_is_built_for_those_who_only_look(serve: Serve) -> None:
    address = serve("lonely", MAX="2")
    for _ in range(3):
        httpx.get(f"{address}/web/metadata")
        with socket(address, "openenv.web") as looking:
            told(looking, "server")
    with socket(address, "openenv.web") as playing:
        assert ask(playing, "reset")["data"]["observation"]["text"] == "environment 1"


def test_a_watcher_sees_what_its_visitor_does_in_the_public_packages_messages(serve: Serve) -> None:
    address = serve("blackjack_env")
    with socket(address) as stranger, httpx.Client(base_url=address, timeout=60) as visitor:
        nothing = told(stranger, "state_update")["episode_state"]
        assert nothing == {
            "episode_id": None,
            "step_count": 0,
            "current_observation": None,
            "action_logs": [],
            "is_reset": True,
        }
        visitor.post("/web/reset", json={"seed": 1, "episode_id": "watched"})
        (cookie,) = visitor.cookies.jar
        with socket(address, Cookie=f"other=1; {cookie.name}={cookie.value}") as watching:
            begun = told(watching, "state_update")["episode_state"]
            assert begun["episode_id"] == "watched"
            assert begun["current_observation"]["player_cards"] == [9, 10]
            assert begun["is_reset"] is True
            watching.send("what is said here is not heard")
            visitor.post("/web/step", json={"action": {"move": "stand"}})
            now = told(watching, "state_update")["episode_state"]
        (logged,) = now["action_logs"]
        assert logged.keys() == {"timestamp", "action", "observation", "reward", "done", "step_count"}
        assert (logged["action"], logged["done"], logged["step_count"]) == ({"move": "stand"}, True, 1)
        assert (now["step_count"], now["is_reset"], now["current_observation"]) == (1, False, logged["observation"])
        with pytest.raises(TimeoutError):
            stranger.recv(timeout=0.2)


@pytest.mark.parametrize("message", ["{", "[]", "3", "{}", '{"type": 1}', b"\x00"])
def test_what_is_no_request_is_answered_and_the_socket_stays(serve: Serve, message: str | bytes) -> None:
    with socket(serve("blackjack_env"), "openenv.web") as page:
        page.send(message)
        assert "JSON object" in told(page, "error")["message"]
        assert ask(page, "fly")["message"] == "There is no request of the type 'fly'."
        assert ask(page, "step", action=[])["message"] == "'action' must be a JSON object."
        assert ask(page, "step", action={})["message"] == "There is no episode yet: reset first."
        assert ask(page, "reset", arguments={"seed": 1})["data"]["observation"]["player_cards"] == [9, 10]


def test_a_flood_of_requests_ends_its_own_socket_only(serve: Serve) -> None:
    address = serve("blackjack_env")
    with socket(address, "openenv.web") as calm, socket(address, "openenv.web") as flooding:
        ask(calm, "reset")
        with pytest.raises(Exception, match="1008"):  # noqa: PT012
            for number in range(200_000):
                flooding.send(json.dumps({"type": "reset", "id": number, "arguments": {}}))
            while True:
                flooding.recv(timeout=120)
        assert ask(calm, "step", action={"move": "stand"})["data"]["done"] is True


def test_arguments_that_reset_does_not_take_are_named(serve: Serve) -> None:
    with socket(serve("taker"), "openenv.web") as page:
        about = told(page, "about")
        assert about["reset_schema"]["properties"]["level"] == {"type": "integer", "default": 3}
        assert about["reset_schema"]["additionalProperties"] is False
        assert ask(page, "reset", arguments={"level": 4, "levle": 5})["dropped"] == ["levle"]


def subprotocol(token: str) -> str:
    return "openenv.token." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def status(address: str, *subprotocols: str, **headers: str) -> int:
    try:
        with socket(address, *subprotocols, **headers) as page:
            assert page.subprotocol == "openenv.web"
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def test_the_token_opens_the_socket_and_nothing_else_does(serve: Serve) -> None:
    agent = "an-agents-secret-0123"
    address = serve("lonely", OPENENV_TRL_TOKEN=TOKEN, OPENENV_TRL_AGENT_TOKEN=agent)
    assert status(address, "openenv.web") == 401
    assert status(address, "openenv.web", subprotocol("wrong")) == 401
    assert status(address, "openenv.web", "openenv.token.%%%") == 401
    assert status(address, "openenv.web", subprotocol(agent)) == 403
    assert status(address, "openenv.web", subprotocol(TOKEN)) == 101
    assert status(address, "openenv.web", Authorization=f"Bearer {TOKEN}") == 101
    assert httpx.get(f"{address}/web/").status_code == 200
    for method, path in (
        ("POST", "/web/reset"),
        ("POST", "/web/step"),
        ("GET", "/web/state"),
        ("GET", "/web/metadata"),
    ):
        assert httpx.request(method, f"{address}{path}").status_code == 401
    with pytest.raises(InvalidStatus, match="401"):  # the subprotocol is the page's own way
        connect(f"{address.replace('http', 'ws', 1)}/ws", subprotocols=[subprotocol(TOKEN)])  # type: ignore[list-item]


def test_pages_of_other_origins_may_not_use_the_socket(serve: Serve) -> None:
    address = serve("lonely")
    assert status(address, "openenv.web", Origin="http://evil.example") == 403
    assert status(address, "openenv.web", Origin=address) == 101
    answer = httpx.post(f"{address}/web/reset", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403


def test_production_mode_shows_and_does_not_play(serve: Serve) -> None:
    address = serve("blackjack_env", OPENENV_MODE="production")
    for method, path in (("POST", "/web/reset"), ("POST", "/web/step"), ("GET", "/web/state")):
        assert httpx.request(method, f"{address}{path}").status_code == 404
    with socket(address, "openenv.web") as page:
        assert told(page, "about")["mode"] == "production"
        assert told(page, "server")["active_sessions"] == 0
        for request in ("reset", "step", "state", "snippet"):
            assert "production mode" in ask(page, request)["message"]
    assert httpx.get(f"{address}/metrics").text.count('openenv_sessions_opened_total{transport="web"}') == 0


def test_there_is_no_page_unless_it_is_wanted(serve: Serve) -> None:
    address = serve("blackjack_env", ENABLE_WEB_INTERFACE="no")
    for path in ("/", "/web", "/web/", "/web/page.js", "/web/metadata"):
        assert httpx.get(f"{address}{path}").status_code == 404
    with pytest.raises(InvalidStatus):
        connect(f"{address.replace('http', 'ws', 1)}/ws/ui")


def test_among_several_workers_each_visitor_finds_their_own(serve: Serve) -> None:
    address = serve("faulty", OPENENV_TRL_WORKERS="2")
    while not all(f'worker="{number}"' in httpx.get(f"{address}/metrics").text for number in (0, 1)):
        pass  # the second is still coming up
    cookies = [httpx.post(f"{address}/web/reset?worker={number % 2}").cookies for number in range(6)]
    assert [each["openenv_web"].rpartition("-w")[2] for each in cookies] == ["0", "1"] * 3
    for step in (1, 2):
        for number, cookie in enumerate(cookies):  # each request over a connection of its own
            action = {"action": {"text": f"visitor {number}"}}
            answer = httpx.post(f"{address}/web/step", json=action, cookies=cookie)
            assert answer.json()["observation"]["text"] == f"step {step}: visitor {number}"
    assert httpx.get(f"{address}/capacity").json()["active_sessions"] == 6
    with socket(address, "openenv.web") as page:
        assert told(page, "server")["workers"] == 2
        assert ask(page, "reset")["data"]["done"] is False


def test_a_server_without_a_page_imports_none_of_it() -> None:
    code = (
        "import sys, os\nfrom blackjack_env.server.app import app\n"
        "assert not [name for name in sys.modules if name.startswith('openenv_trl.server.web.')]\n"
        "assert '/ws/ui' not in app.state.doors\n"
    )
    clean = {name: value for name, value in os.environ.items() if "WEB_INTERFACE" not in name}
    subprocess.run([sys.executable, "-c", code], check=True, env=clean)


@pytest.mark.parametrize("command", [["openenv_trl.cli", "serve"], ["openenv_trl.server"]])
def test_serve_web_serves_the_page_and_tells_where_there_can_be_none(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("async def app(scope, receive, send):\n    raise SystemExit\n")
    folder = str(Path(__file__).parents[2] / "environments" / "blackjack_env")
    for target, expected in ((folder, "Serving on (.*)"), ("bare:app", "--web has no (effect)")):
        line = [sys.executable, "-m", *command, target, "--web", "--port", "0"]
        with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as server:
            assert server.stderr is not None
            found = next(filter(None, (re.search(expected, each) for each in server.stderr)))
            if target == folder:
                assert httpx.get(f"{found[1]}/web/").status_code == 200
            server.terminate()


def test_the_public_functions_page_is_there_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from blackjack_env.models import BlackjackAction, BlackjackObservation
    from blackjack_env.server.blackjack_environment import BlackjackEnvironment

    from openenv_trl.compat.env_server.web_interface import create_web_interface_app

    monkeypatch.delenv("ENABLE_WEB_INTERFACE", raising=False)
    app = create_web_interface_app(BlackjackEnvironment, BlackjackAction, BlackjackObservation, "cards", 3)
    assert "/ws/ui" in app.state.doors
    assert (app.state.env_name, app.state.max_concurrent_envs) == ("cards", 3)
