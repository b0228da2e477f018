"""What the page is told before anybody plays: forms out of signatures, READMEs, and the program out of a record."""

from __future__ import annotations

import functools
import json
import math
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.environment import Environment, tool
from openenv_trl.mcp_environment import MCPEnvironment
from openenv_trl.server.web.description import action_schema, known_tools, readme_of, reset_schema
from openenv_trl.server.web.episode_record import MOST_STEPS, EpisodeRecord
from openenv_trl.server.web.snippet import snippet_of
from openenv_trl.types import Action, CallToolAction, Observation, State


class Level(Enum):
    EASY = "easy"
    HARD = "hard"


class Opaque:
    pass


class Game(Environment[Action, Observation, State]):
    def reset(  # type: ignore[override]
        self, seed: int | None = None, level: Level = Level.EASY, *, thing: Opaque | None = None, must: list[int]
    ) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return State()

    @tool
    def guess(self, number: int) -> Observation:
        """Guess it."""
        return Observation()


class Asynchronous(Game):
    async def reset_async(self, seed: int | None = None, **options: Any) -> Observation:  # type: ignore[override]
        return Observation()


def test_the_reset_form_is_what_the_signature_says() -> None:
    schema = reset_schema(functools.partial(Game))
    assert schema["properties"]["seed"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert schema["properties"]["level"]["default"] == "easy"
    assert schema["properties"]["level"]["enum"] == ["easy", "hard"]
    assert "JSON" in schema["properties"]["thing"]["description"]
    assert schema["required"] == ["must"]
    assert schema["additionalProperties"] is False


def test_an_asynchronous_reset_is_asked_where_there_is_one() -> None:
    schema = reset_schema(Asynchronous)
    assert list(schema["properties"]) == ["seed"]
    assert schema["additionalProperties"] is True


def test_of_a_function_only_the_common_arguments_are_known() -> None:
    schema = reset_schema(lambda: Game())
    assert list(schema["properties"]) == ["seed", "episode_id"]
    assert schema["additionalProperties"] is True


def test_tools_are_known_early_where_all_environments_have_the_same() -> None:
    class OfAServer(MCPEnvironment):
        pass

    assert [each.name for each in known_tools(Game) or []] == ["guess"]
    assert known_tools(OfAServer) is None
    assert known_tools(lambda: Game()) is None


def test_metadata_stand_in_no_form_unless_they_are_the_actions_own() -> None:
    class Move(Action):
        to: int

    class Tagged(Move):
        metadata: dict[str, Any]

    assert list((action_schema(Move) or {})["properties"]) == ["to"]
    assert set((action_schema(Tagged) or {})["properties"]) == {"to", "metadata"}
    assert action_schema(CallToolAction) is None


def test_the_readme_is_the_packages_or_the_one_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from blackjack_env.server.blackjack_environment import BlackjackEnvironment

    made_up = type("MadeUp", (BlackjackEnvironment,), {"__module__": "nowhere"})
    for factory in (BlackjackEnvironment, functools.partial(made_up)):
        assert "lackjack" in (readme_of(factory) or "").splitlines()[0]
    named = tmp_path / "other.md"
    named.write_text("---\ntitle: A Space\n---\n\n# Mine\n")
    monkeypatch.setenv("ENV_README_PATH", str(named))
    assert readme_of(BlackjackEnvironment) == "# Mine\n"
    monkeypatch.setenv("ENV_README_PATH", str(tmp_path / "none.md"))
    assert "lackjack" in (readme_of(BlackjackEnvironment) or "")
    monkeypatch.delenv("ENV_README_PATH")
    assert readme_of(Game) is None


def call(record: EpisodeRecord, action: dict[str, Any], size: int = 1) -> None:
    record.add(action, {"observation": {"size": size}, "reward": 1.0, "done": False}, size, 0.0)


@pytest.mark.parametrize("begun", [{}, {"seed": 3, "name": "'''\n"}, {"class": 1}, {"no name": None}])
def test_the_program_has_exactly_the_calls_that_were_made(begun: dict[str, Any]) -> None:
    made: list[Any] = []

    class Recorder:
        def __init__(self, address: str) -> None:
            made.append(address)

        def sync(self) -> Recorder:
            return self

        def __enter__(self) -> Recorder:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def reset(self, **arguments: Any) -> Observation:
            made.append(arguments)
            return Observation()

        def step(self, action: dict[str, Any]) -> Any:
            made.append(action)
            return type("Result", (), {"observation": None, "reward": None, "done": None})

    record = EpisodeRecord()
    begun = {"seed": 3, "class": "'''\n", "no name": None}
    actions: list[dict[str, Any]] = [
        {"text": 'a"""\\\n\u2028'},
        {"weight": math.nan},
        {"deep": {"er": [1.5, True, None]}},
    ]
    record.begin(begun)
    for action in actions:
        call(record, action)
    text = snippet_of(record, "http://h'ost\n:1", needs_token=True)
    assert "OPENENV_TRL_TOKEN" in text
    exec(text.replace("from openenv_trl import GenericEnvClient", ""), {"GenericEnvClient": Recorder})
    assert json.dumps(made) == json.dumps(["http://h'ost\n:1", begun, *actions])


def test_the_program_has_the_seed_that_the_state_tells_or_says_that_there_is_none() -> None:
    def program(begun: dict[str, Any], state: dict[str, Any] | None) -> str:
        record = EpisodeRecord()
        record.begin(begun)
        return snippet_of(record, "x", needs_token=False, state=state)

    drawn = program({"level": 2}, {"seed": 7, "step_count": 0})
    assert "env.reset(level=2, seed=7)" in drawn
    assert "# No seed was given: this is the one" in drawn
    assert "env.reset(seed=7)" in program({"seed": None}, {"seed": 7})
    for state in (None, {}, {"seed": None}, {"seed": "of dice"}, {"seed": True}):
        untold = program({}, state)
        assert "env.reset()" in untold
        assert "# No seed was given, and the state tells none" in untold
    given = program({"seed": 0}, {"seed": 7})
    assert "env.reset(seed=0)" in given
    assert "#" not in given


def test_seed_and_episode_id_are_fields_where_the_signature_has_no_types() -> None:
    class Untyped(Game):
        def reset(self, seed=None, episode_id=None, level=1):  # type: ignore[no-untyped-def,override]
            return Observation()

    fields = reset_schema(Untyped)["properties"]
    assert fields["seed"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert fields["episode_id"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert fields["level"] == {"default": 1}


def test_a_record_keeps_a_thousand_steps_and_says_so() -> None:
    record = EpisodeRecord(keeps_observations=True)
    record.begin({})
    for number in range(MOST_STEPS + 5):
        call(record, {"number": number})
    assert [each["action"]["number"] for each in record.logged()] == list(range(5, MOST_STEPS + 5))
    assert len(record.actions) == MOST_STEPS
    assert f"The first {MOST_STEPS} of {MOST_STEPS + 5} steps" in snippet_of(record, "x", needs_token=False)


def test_large_observations_push_old_ones_out_of_the_record() -> None:
    record = EpisodeRecord(keeps_observations=True)
    record.begin({})
    for number in range(10):
        call(record, {"number": number}, size=1024 * 1024)
    assert [each["action"]["number"] for each in record.logged()] == [6, 7, 8, 9]
    call(record, {"number": 10}, size=1024**3)
    assert [each["action"]["number"] for each in record.logged()] == [10]
    record.begin({"seed": 1})
    assert record.logged() == []
    assert record.step_count == 0
