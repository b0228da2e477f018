"""What an assistant does on the calendar, what it sees, and what the trainer sees of an episode.

The fields' names and wire shapes are those of the public OpenEnv package's calendar environment, so that what was
written for it can talk to this server. Ours is ``message``: the same in words, for language models.

Source: ``calendar_env`` of the OpenEnv package, version 0.10.0, for the names.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from openenv_trl.types import Action, Observation, State


class CalendarAction(Action):
    """One call of a tool, or the question which tools there are."""

    action_type: Literal["ListToolsAction", "ToolCallAction"]
    """"ToolCallAction" calls the tool ``tool_name``; "ListToolsAction" lists the tools and changes nothing."""
    tool_name: str | None = None
    """Name of the tool, such as "events_list"; the public environment's names, such as "list_events", are taken too."""
    arguments: dict[str, Any] | None = Field(default_factory=dict)
    """The tool's arguments, by the names of the Google Calendar API."""


class CalendarObservation(Observation):
    """What a call brought."""

    success: bool = True
    """Whether the call did what it asked for. A call that failed changed nothing."""
    error_message: str | None = None
    """What was wrong and what to change, where the call failed."""
    tools_list: list[dict[str, Any]] | None = None
    """The tools with name, description and ``inputSchema``, for a "ListToolsAction"."""
    tool_result: dict[str, Any] | None = None
    """``text`` (the API's answer as JSON), ``status_code`` and ``isError``, for a "ToolCallAction"."""
    message: str = ""
    """What a language model reads: the task after a reset, then the answer's JSON or the error."""

    @property
    def resource(self) -> Any:
        """The API's answer, read from the JSON of ``tool_result``; None where there is none."""
        return None if self.tool_result is None else json.loads(self.tool_result["text"])


class CalendarState(State):
    """Which task is worked on, for whom, and in which world; never what would solve it."""

    task_id: str | None = None
    """The task's name: its family, level and seed."""
    task: str | None = None
    """The task's family."""
    level: str | None = None
    """How hard the task is: "easy", "medium" or "hard"."""
    task_seed: int | None = None
    """The seed of the task."""
    seed: int | None = None
    """The seed of the episode: as given to ``reset``, or drawn from the operating system's entropy."""
    acting_user: str | None = None
    """E-mail of the user for whom the assistant acts."""
    now: str | None = None
    """The world's date and time. It stands still during an episode."""
    time_zone: str | None = None
    """The acting user's time zone."""
    max_steps: int | None = None
    """Calls after which the episode ends by itself."""
    reward: str = "task"
    """How reward is given: "task" or "public"."""
