"""Environments that a page has to show: a picture, hostile texts, every kind of field, one slot only, and faults."""

from __future__ import annotations

import base64
import struct
import zlib
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal

import numpy
from pydantic import BaseModel, Field

from openenv_trl.environment import Environment
from openenv_trl.server import create_app
from openenv_trl.server.settings import AppSettings
from openenv_trl.types import Action, EnvironmentMetadata, Observation, State, Tool

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\"'&amp;{{7*7}}"
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


class Counting(Environment[Any, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    EXECUTION: ClassVar[Literal["auto", "loop", "thread", "process"]] = "loop"

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def _begin(self, episode_id: str | None) -> None:
        self._state = State(episode_id=episode_id or "unnamed")

    def _count(self) -> int:
        self._state.step_count += 1
        return self._state.step_count

    @property
    def state(self) -> State:
        return self._state


# ------------------------------------------------------------------ pictures


class Paint(Action):
    color: Literal["red", "green", "blue"]


class Painting(Observation):
    pixels: Any = None
    gray: Any = None
    flat: list[int] = Field(default_factory=list)
    flat_shape: list[int] = Field(default_factory=list)
    png: str = ""


def png_of(color: tuple[int, int, int], side: int = 4) -> str:
    rows = (b"\0" + bytes(color) * side) * side
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    signature = bytes([137, 80, 78, 71, 13, 10, 26, 10])
    return f"data:image/png;base64,{base64.b64encode(signature + body).decode()}"


class Painter(Counting):
    colors: ClassVar[dict[str, tuple[int, int, int]]] = {"red": RED, "green": GREEN, "blue": BLUE}

    def reset(self, seed: int | None = None, episode_id: str | None = None, color: str = "red") -> Painting:
        self._begin(episode_id)
        return self._painted(color)

    def step(self, action: Paint, timeout_s: float | None = None, **kwargs: Any) -> Painting:
        self._count()
        painting = self._painted(action.color)
        painting.reward = 1.0 if action.color == "green" else -0.5
        return painting

    def render_web(self, observation: dict[str, Any]) -> str | None:
        return (
            f'<p id="seen" style="margin:0">{observation["flat_shape"]}</p><img src="{observation["png"]}" alt="now">'
        )

    def web_actions(self, observation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        return [(f"Paint {name}", {"color": name}) for name in self.colors]

    def _painted(self, name: str) -> Painting:
        color = self.colors[name]
        pixels = numpy.zeros((20, 30, 3), numpy.uint8)
        pixels[:, :15] = color
        gray = numpy.arange(400, dtype=numpy.uint8).reshape(20, 20) % 200
        return Painting(pixels=pixels, gray=gray, flat=list(color) * 12, flat_shape=[3, 4, 3], png=png_of(color))


class PainterElsewhere(Painter):
    EXECUTION: ClassVar[Literal["auto", "loop", "thread", "process"]] = "process"


class Forger(Painter):
    """What it renders would take over the page, if anything of it were carried out."""

    def render_web(self, observation: dict[str, Any]) -> str | None:
        owned = "parent.document.title=document.title='owned'"
        return (
            f'<p id="seen" onclick="{owned}">here</p><script>{owned}</script><img src="/health" onerror="{owned}">'
            f'<svg onload="{owned}"></svg><iframe srcdoc="<script>{owned}</script>"></iframe>'
            '<meta http-equiv="refresh" content="0;url=/health"><form action="/web/reset" method="post"><button>Go'
            '</button></form><a id="out" target="_top" href="/health">out</a>'
            '<link rel="stylesheet" href="//127.0.0.2/">'
            f'<a id="run" href="javascript:{owned}">run</a><style>#seen {{ background: url(/health) }}</style>'
        )


# ------------------------------------------------------------------ every kind of field


class Size(str, Enum):
    small = "small"
    large = "large"


class Point(BaseModel):
    x: int
    y: int = 0


class Circle(BaseModel):
    kind: Literal["circle"] = "circle"
    radius: float = Field(gt=0)


class Box(BaseModel):
    kind: Literal["box"] = "box"
    corners: list[Point]


class Everything(Action):
    count: int = Field(ge=1, le=10, description="How many.")
    weight: float = 0.5
    loud: bool = False
    size: Size = Size.small
    note: str | None = None
    at: Point
    tags: list[str] = Field(default_factory=list)
    span: int | tuple[int, int] | None = None
    shape: Annotated[Circle | Box, Field(discriminator="kind")]
    extra: dict[str, Any] = Field(default_factory=dict)


class Received(Observation):
    action: dict[str, Any] = Field(default_factory=dict)


class Taker(Counting):
    """Says what it was given."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, *, level: int = 3) -> Received:
        self._begin(episode_id)
        return Received(action={"level": level, "seed": seed})

    def step(self, action: Everything, timeout_s: float | None = None, **kwargs: Any) -> Received:
        self._count()
        return Received(action=action.model_dump(mode="json", exclude={"metadata"}))


# ------------------------------------------------------------------ hostile texts


class Say(Action):
    text: str = Field(description=HOSTILE)


class Said(Observation):
    text: str = HOSTILE
    nested: dict[str, Any] = Field(default_factory=dict)


class Hostile(Counting):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Said:
        self._begin(HOSTILE)
        return Said(nested={HOSTILE: [HOSTILE]}, metadata={HOSTILE: HOSTILE})

    def step(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Said:
        self._count()
        if action.text == "raise":
            raise ValueError(HOSTILE)
        return Said(text=action.text)

    def web_actions(self, observation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        return [(HOSTILE, {"text": HOSTILE})]

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(
            name=HOSTILE,
            description=HOSTILE,
            version="1",
            readme_content="\n\n".join(
                [f"# {HOSTILE}", HOSTILE, "[click](javascript:document.title='owned')", f"| {HOSTILE} |\n|---|"]
            ),
        )


# ------------------------------------------------------------------ more tools than fit beside each other


class Use(Action):
    way: Literal["list", "call"]
    tool: str | None = None


class Toolbox(Counting):
    """Its action is a choice that needs another field; its tools are nine, each with an argument."""

    def reset(self, seed=None, episode_id=None) -> Said:  # type: ignore[no-untyped-def]  # as many environments write it
        self._begin(episode_id)
        return Said(text=repr((seed, episode_id)))

    def step(self, action: Use, timeout_s: float | None = None, **kwargs: Any) -> Said:
        self._count()
        return Said(text=action.way)

    @classmethod
    def list_tools(cls) -> list[Tool]:
        schema = {"type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]}
        return [Tool(name=f"turn_{number}", description="Turns.", input_schema=schema) for number in range(1, 10)]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Said:
        self._count()
        return Said(text=f"{name} by {arguments['by']}")


# ------------------------------------------------------------------ faults and one slot


class Faulty(Counting):
    """Its picture cannot be drawn, its buttons are none, and a step may raise."""

    built: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).built += 1

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Said:
        self._begin(episode_id)
        return Said(text=f"environment {self.built}")

    def step(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Said:
        if action.text == "raise":
            raise ValueError("the dice are gone")
        return Said(text=f"step {self._count()}: {action.text}", done=action.text == "end")

    def render_web(self, observation: dict[str, Any]) -> str | None:
        raise RuntimeError("no paint left")

    def web_actions(self, observation: dict[str, Any]) -> Any:
        return ["not a pair"]


def _served(environment: type[Counting], action: type[Action], observation: type[Observation], **more: Any) -> Any:
    return create_app(environment, action, observation, env_name=environment.__name__.lower(), **more)


painter = _served(Painter, Paint, Painting, max_concurrent_envs=8)
painter_elsewhere = _served(PainterElsewhere, Paint, Painting, max_concurrent_envs=2)
forger = _served(Forger, Paint, Painting, max_concurrent_envs=8)
taker = _served(Taker, Everything, Received, max_concurrent_envs=8)
toolbox = _served(Toolbox, Use, Said, max_concurrent_envs=8)
hostile = _served(Hostile, Say, Said, max_concurrent_envs=8)
faulty = _served(Faulty, Say, Said, max_concurrent_envs=8)
lonely = _served(Faulty, Say, Said, title_override="Only one")
impatient = _served(Faulty, Say, Said, settings=AppSettings(detached_timeout_s=0.3))
