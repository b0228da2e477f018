from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.server.loading import load_app


@pytest.fixture(autouse=True)
def _own_import_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def _package(folder: Path, *, manifest: str = "name: game\napp: server.app:app\n", app: str = "") -> Path:
    (folder / "server").mkdir(parents=True)
    for name in ("__init__.py", "server/__init__.py"):
        (folder / name).touch()
    (folder / "openenv.yaml").write_text(manifest)
    (folder / "models.py").write_text("NAME = 'relative'\n")
    (folder / "server" / "app.py").write_text(app or "from ..models import NAME\ndef app(): return NAME\n")
    return folder


def test_a_folder_is_loaded_as_its_package(tmp_path: Path) -> None:
    assert load_app(_package(tmp_path / "game_one"))() == "relative"


@pytest.mark.parametrize(
    "manifest", ["name: x\n", "app: 'server.app:app'  # here\n", 'app: "server.app:app"', "a: 1\napp: server.app:app"]
)
def test_the_manifest_names_the_application(tmp_path: Path, manifest: str) -> None:
    assert load_app(str(_package(tmp_path / "game_two", manifest=manifest)))() == "relative"


def test_an_import_name_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path / "game_three")
    monkeypatch.chdir(tmp_path)
    assert load_app("game_three.server.app:app")() == "relative"


def test_a_folder_without_manifest_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"has no openenv.yaml"):
        load_app(tmp_path)


@pytest.mark.parametrize("target", ["nowhere/at/all", "just_a_name", "x:"])
def test_what_is_neither_folder_nor_name_is_told(target: str) -> None:
    with pytest.raises(ConfigurationError, match="neither a folder nor 'module:attribute'"):
        load_app(target)


def test_a_folder_that_is_no_python_name_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Rename it"):
        load_app(_package(tmp_path / "game-four"))


def test_a_missing_module_is_told() -> None:
    with pytest.raises(ConfigurationError, match="Cannot import 'no_such_module_here'"):
        load_app("no_such_module_here:app")


def test_a_missing_attribute_is_told(tmp_path: Path) -> None:
    folder = _package(tmp_path / "game_five", app="application = 1\n")
    with pytest.raises(ConfigurationError, match="has no 'app' to serve"):
        load_app(folder)


def test_an_attribute_that_cannot_be_called_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a int, not an ASGI application"):
        load_app(_package(tmp_path / "game_six", app="app = 1\n"))


def test_a_failing_import_of_the_applications_own_is_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        load_app(_package(tmp_path / "game_seven", app="import no_such_dependency\n"))


@pytest.mark.parametrize(
    ("name", "words"), [("Game", "is an Environment class"), ("game", "is an instance of the Environment class Game")]
)
def test_an_environment_in_place_of_the_application_is_told(tmp_path: Path, name: str, words: str) -> None:
    code = "from openenv_trl import Environment\nclass Game(Environment):\n    def reset(self): ...\n"
    code += "    def step(self, action): ...\n    state = None\n    def __call__(self): ...\ngame = Game()\n"
    folder = _package(tmp_path / "game_eight", manifest=f"app: server.app:{name}\n", app=code)
    with pytest.raises(ConfigurationError, match=rf"{words}, not an application: .*create_app\(Game, \.\.\.\)"):
        load_app(folder)


def test_a_gymnasium_environment_is_loaded_by_its_name() -> None:
    app = load_app("gymnasium:FrozenLake-v1?is_slippery=false&map_name=8x8&max_concurrent_envs=3")
    assert app.state.env_name == "FrozenLake-v1"
    assert app.state.max_concurrent_envs == 3
    action = app.state.models.action_cls.model_json_schema()
    assert action["x-gymnasium"]["observation_space"]["n"] == 64


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("gymnasium:", "Name the Gymnasium environment to serve"),
        ("gymnasium:NoSuchThing-v0", "Gymnasium cannot make 'NoSuchThing-v0'"),
        ("gymnasium:CartPole-v1?render_mode", "must be name=value, joined by '&'"),
        ("gymnasium:CartPole-v1?colour=red", "unexpected keyword argument 'colour'"),
    ],
)
def test_a_gymnasium_environment_that_cannot_be_made_is_told(target: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        load_app(target)
