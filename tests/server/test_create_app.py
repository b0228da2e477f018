"""What `create_app` takes and refuses, and the HTTP routes of what it returns."""

from __future__ import annotations

import functools
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from openenv_trl.environment import Environment
from openenv_trl.errors import ConcurrencyConfigurationError, ConfigurationError
from openenv_trl.server import ConcurrencyConfig, create_app
from openenv_trl.types import Action, EnvironmentMetadata, Observation, State


class Lonely(Environment[Action, Observation, State]):
    built = 0
    closed = 0

    def __init__(self, name: str = "x") -> None:
        type(self).built += 1

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return State()

    def close(self) -> None:
        type(self).closed += 1


class Sociable(Lonely):
    SUPPORTS_CONCURRENT_SESSIONS = True
    built = 0
    closed = 0


class Proud(Sociable):
    built = 0
    closed = 0

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name="proud", description="Speaks for itself", version="2.0")


class Broken(Proud):
    def __init__(self) -> None:
        raise OSError("no such game")


def _get(served: Any, path: str) -> Any:
    with urllib.request.urlopen(f"{served.url}{path}", timeout=30) as response:
        return json.load(response)


def test_an_instance_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a callable"):
        create_app(Lonely(), Action, Observation)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a callable"):
        create_app("Lonely", Action, Observation)  # type: ignore[arg-type]


class Score(State):
    points: int = 0


def test_arguments_for_the_public_packages_web_page_are_taken_and_said_to_have_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    create_app(
        Sociable,
        Action,
        Observation,
        gradio_builder=lambda: None,
        custom_tab_name="Board",
        custom_tab_primary=True,
        show_default_tab=False,
    )
    (record,) = caplog.records
    for name in ("gradio_builder", "custom_tab_name", "custom_tab_primary", "show_default_tab"):
        assert name in record.message
    assert "\n" not in record.message


def test_arguments_are_taken_by_position_as_in_the_public_package(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(Sociable, Action, Observation, "game", 5, None, None, "Custom", False, True, None, Score)
    assert (app.state.env_name, app.state.max_concurrent_envs) == ("game", 5)
    assert "points" in _get(serve(app), "/schema")["state"]["properties"]
    assert not [record for record in caplog.records if "no effect" in record.message]


@pytest.mark.parametrize("env", [Lonely, functools.partial(Lonely, name="y"), lambda: Lonely()])
def test_a_class_that_does_not_say_it_can_share_gets_one_session(env: Any) -> None:
    create_app(env, Action, Observation)
    with pytest.raises(ConcurrencyConfigurationError, match="SUPPORTS_CONCURRENT_SESSIONS") as caught:
        create_app(env, Action, Observation, max_concurrent_envs=2)
    assert (caught.value.environment_name, caught.value.max_concurrent_envs) == ("Lonely", 2)


@pytest.mark.parametrize("env", [Sociable, functools.partial(Sociable, name="y")])
def test_a_class_is_inspected_without_being_built(env: Any) -> None:
    built = Sociable.built
    create_app(env, Action, Observation, max_concurrent_envs=8)
    assert Sociable.built == built


def test_a_function_is_called_once_to_see_what_it_builds_and_that_is_closed() -> None:
    built, closed = Sociable.built, Sociable.closed
    create_app(lambda: Sociable(), Action, Observation, max_concurrent_envs=8)
    assert (Sociable.built, Sociable.closed) == (built + 1, closed + 1)


def test_two_ways_to_say_how_many_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="not both"):
        create_app(Sociable, Action, Observation, max_concurrent_envs=2, concurrency_config=ConcurrencyConfig())


@pytest.mark.parametrize("most", [0, -1])
def test_room_for_nobody_is_refused(most: int) -> None:
    with pytest.raises(ConfigurationError, match="one session at least"):
        create_app(Sociable, Action, Observation, max_concurrent_envs=most)


def test_an_unknown_mode_names_the_two_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    create_app(Lonely, Action, Observation, mode="PRODUCTION")
    with pytest.raises(ValueError, match="'simulation' or 'production'"):
        create_app(Lonely, Action, Observation, mode="training")
    monkeypatch.setenv("OPENENV_MODE", "training")
    with pytest.raises(ValueError, match="'simulation' or 'production'"):
        create_app(Lonely, Action, Observation)


def test_health_and_openapi_are_those_of_an_openenv_server(serve: Callable[..., Any]) -> None:
    served = serve(create_app(Lonely, Action, Observation))
    assert _get(served, "/health") == {"status": "healthy"}
    assert _get(served, "/openapi.json")["info"] == {"title": "OpenEnv Environment HTTP API", "version": "1.0.0"}


def test_the_schemas_are_those_of_the_classes(serve: Callable[..., Any]) -> None:
    class Opening(Observation):
        board: str = ""

    class Place(State):
        square: int = 0

    app = create_app(Lonely, Action, Observation, state_cls=Place, reset_observation_cls=Opening)
    schema = _get(serve(app), "/schema")
    assert list(schema) == ["action", "observation", "state", "reset_observation"]
    assert schema["action"] == Action.model_json_schema()
    assert schema["state"] == Place.model_json_schema()
    assert schema["reset_observation"] == Opening.model_json_schema()


def test_the_reset_observation_is_the_observation_where_nothing_else_is_said(serve: Callable[..., Any]) -> None:
    schema = _get(serve(create_app(Lonely, Action, Observation)), "/schema")
    assert schema["reset_observation"] == schema["observation"] == Observation.model_json_schema()


def test_plain_metadata_build_no_environment(serve: Callable[..., Any]) -> None:
    built = Lonely.built
    assert _get(serve(create_app(Lonely, Action, Observation)), "/metadata") == {
        "name": "Lonely",
        "description": "Lonely environment",
        "readme_content": None,
        "version": "1.0.0",
        "author": None,
        "documentation_url": None,
    }
    assert Lonely.built == built


def test_own_metadata_build_one_environment_and_close_it(serve: Callable[..., Any]) -> None:
    built, closed = Proud.built, Proud.closed
    served = serve(create_app(Proud, Action, Observation))
    assert [_get(served, "/metadata")["name"] for _ in range(2)] == ["proud", "proud"]
    assert (Proud.built, Proud.closed) == (built + 1, closed + 1)


def test_metadata_of_a_broken_factory_say_so(serve: Callable[..., Any]) -> None:
    served = serve(create_app(Broken, Action, Observation))
    with pytest.raises(urllib.error.HTTPError) as caught:
        _get(served, "/metadata")
    assert caught.value.code == 500
    detail = json.load(caught.value)["detail"]
    assert detail == "Environment factory 'Broken' failed to create instance."


@pytest.mark.parametrize("path", ["/nope", "/ws"])
def test_what_is_not_there_is_not_found(serve: Callable[..., Any], path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        _get(serve(create_app(Lonely, Action, Observation)), path)
    assert caught.value.code == 404


def test_a_websocket_elsewhere_is_refused(serve: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match="403"):
        serve(create_app(Lonely, Action, Observation)).socket("/nope")
