"""A model says on the wire what pydantic says of it in JSON, its own settings included."""

from __future__ import annotations

import datetime
import decimal
import enum
import ipaddress
import json
import math
import pathlib
import uuid
from typing import Any

import pytest
from pydantic import (
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    computed_field,
    field_serializer,
    model_serializer,
)
from pydantic.dataclasses import dataclass

from openenv_trl.types import Observation, State
from openenv_trl.wire.codec import decode, encode
from openenv_trl.wire.observations import lost_reward, parse_step_result, serialize_observation

WHEN = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.timezone.utc)


class Colour(enum.Enum):
    RED = "red"


class Plain(Observation):
    number: float = 0.5
    text: bytes = b"abc"
    when: datetime.datetime = WHEN
    span: datetime.timedelta = datetime.timedelta(days=1)
    price: decimal.Decimal = decimal.Decimal("1.10")
    name: uuid.UUID = uuid.UUID(int=5)
    colour: Colour = Colour.RED
    both: tuple[int, Colour] = (1, Colour.RED)
    table: dict[int, Colour] = Field(default={1: Colour.RED})
    anything: Any = (1, Colour.RED, WHEN)
    huge: int = 2**70


class Typed(Observation):
    path: pathlib.Path = pathlib.Path("a/b")
    address: ipaddress.IPv4Address = ipaddress.IPv4Address("127.0.0.1")
    secret: SecretStr = SecretStr("password")
    packed: Base64Bytes = b"/w=="


class Configured(Observation):
    model_config = ConfigDict(ser_json_bytes="base64", ser_json_timedelta="float", ser_json_inf_nan="strings")

    raw: bytes = b"\xff"
    span: datetime.timedelta = datetime.timedelta(days=1)
    number: float = math.nan
    anything: Any = b"\xfe"
    flags: set[str] = Field(default={"a"})


class Inside(BaseModel):
    model_config = ConfigDict(ser_json_bytes="hex")

    raw: bytes = b"\xff"


class Around(Observation):
    first: int = 1
    inside: Inside = Inside()
    several: list[Inside] = Field(default=[Inside()])
    last: int = 2


class JsonOnly(Observation):
    number: int = 7
    other: int = 8

    @field_serializer("number", when_used="json")
    def as_text(self, number: int) -> str:
        return f"#{number}"

    @computed_field
    @property
    def double(self) -> int:
        return 2 * self.number


class Whole(Observation):
    number: int = 7

    @model_serializer(mode="wrap", when_used="json")
    def wrapped(self, handler: Any) -> Any:
        return {**handler(self), "more": 1}


class Aliased(Observation):
    model_config = ConfigDict(serialize_by_alias=True)

    number: float = Field(default=0.5, serialization_alias="theNumber")
    raw: bytes = Field(default=b"a", serialization_alias="theBytes")


class Tree(Observation):
    children: list[Tree] = Field(default=[])
    span: datetime.timedelta = datetime.timedelta(seconds=1)


@dataclass
class Deal:
    span: datetime.timedelta = datetime.timedelta(seconds=1)


class WithDataclass(Observation):
    deal: Deal = Field(default_factory=Deal)


@pytest.mark.parametrize(
    "observation",
    [
        Plain(),
        Typed(),
        Configured(),
        Around(),
        JsonOnly(),
        Whole(),
        Aliased(),
        Tree(children=[Tree(children=[Tree()])]),
        WithDataclass(),
        Observation(metadata={"when": WHEN, "inside": [Plain()]}),
    ],
    ids=lambda observation: type(observation).__name__,
)
def test_an_observation_is_written_as_pydantic_writes_it_in_json(observation: Observation) -> None:
    written = decode(encode(serialize_observation(observation)))["observation"]
    assert written == json.loads(observation.model_dump_json(exclude={"reward", "done"}))
    assert list(written) == list(json.loads(observation.model_dump_json(exclude={"reward", "done"})))


def test_bytes_that_are_no_text_are_written_where_pydantic_has_no_word_for_them() -> None:
    class Mixed(JsonOnly):
        raw: bytes = b"\xff"

    class Both(Configured):
        inside: Any = Field(default={"a": object})

    written = decode(encode(serialize_observation(Mixed())))["observation"]
    assert (written["raw"], written["number"]) == ("data:application/octet-stream;base64,/w==", "#7")
    with pytest.raises(TypeError, match=r"^observation\.inside\.a: an object of type type"):
        encode(serialize_observation(Both()))


def test_arrays_stand_beside_fields_with_settings() -> None:
    numpy = pytest.importorskip("numpy")
    written = decode(encode(serialize_observation(Configured(anything=numpy.arange(3, dtype=">i2")))))["observation"]
    assert (written["anything"], written["raw"]) == ([0, 1, 2], "_w==")


def test_a_dump_of_the_authors_own_is_asked() -> None:
    class Own(Observation):
        number: int = 7

        def model_dump(self, **settings: Any) -> dict[str, Any]:
            return {**super().model_dump(**settings), "number": "seven"}

    assert serialize_observation(Own(reward=1.0))["observation"] == {"metadata": {}, "number": "seven"}


def test_a_serializer_that_raises_is_named() -> None:
    class Broken(Observation):
        fine: int = 1
        number: int = 7

        @field_serializer("number")
        def refuse(self, number: int) -> str:
            raise ValueError("no such number")

    class BrokenInJson(Observation):
        number: int = 7

        @field_serializer("number", when_used="json")
        def refuse(self, number: int) -> str:
            raise ValueError("no such number")

    for broken in (Broken(), BrokenInJson()):
        with pytest.raises(TypeError, match=r"^observation\.number: .*no such number"):
            serialize_observation(broken)


def test_an_observation_that_holds_itself_is_refused_with_the_field() -> None:
    tree = Tree()
    tree.children.append(tree)
    with pytest.raises(TypeError, match=r"^observation\.children: Circular reference"):
        serialize_observation(tree)


def test_extra_fields_of_a_state_are_written() -> None:
    assert decode(encode(State(step_count=1, board={1: {2}}))) == {  # type: ignore[call-arg]
        "episode_id": None,
        "step_count": 1,
        "board": {"1": [2]},
    }


@pytest.mark.parametrize(("reward", "word"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_a_reward_that_json_has_not_is_told_in_the_metadata(reward: float, word: str) -> None:
    observation = Plain(reward=reward, metadata={"k": 1})
    result = parse_step_result(decode(encode(serialize_observation(observation))))
    assert result.reward is None
    assert result.metadata == {"k": 1, "reward_not_finite": word}
    assert result.observation["metadata"] == result.metadata
    assert lost_reward(result.metadata) == word
    assert observation.metadata == {"k": 1}


def test_no_reward_is_not_a_lost_one() -> None:
    result = parse_step_result(decode(encode(serialize_observation(Plain(metadata={"k": 1})))))
    assert result.reward is None
    assert lost_reward(result.metadata) is None
    assert lost_reward(None) is None
