"""The environment: an assistant at work for one user on a company's calendars, one task an episode.

Every call is a step. What the API refuses is an observation that says what to change, and changes nothing. The clock
of the world stands still, and ids come of the task, so that equal seeds and calls give equal observations.
"""

from __future__ import annotations

import json
import os
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

# By the package's own name, not relative: this module is also loaded as ``server.calendar_environment``,
# where an app is named ``server.app:app`` and run from this folder.
from calendar_env.models import CalendarAction, CalendarObservation, CalendarState
from calendar_env.server.errors import CalendarError, invalid
from calendar_env.server.service import CalendarService
from calendar_env.server.settings import CalendarSettings, settings_from
from calendar_env.server.store import CalendarStore
from calendar_env.server.task import GeneratedTasks, Score, Task, TaskSource
from calendar_env.server.tools.calendars import AclTools, CalendarTools
from calendar_env.server.tools.directory import DirectoryTools
from calendar_env.server.tools.events import EventTools
from calendar_env.server.tools.public_names import own_call
from calendar_env.server.tools.resources import plain
from calendar_env.server.tools.schemas import readable
from openenv_trl.environment import Environment, tool
from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError
from openenv_trl.types import EnvironmentMetadata, Tool

DESCRIPTION = (
    "A company's calendars, by the tools of the Google Calendar API: tasks for an assistant, judged on the outcome."
)

CORE_TOOLS = (
    *("events_list", "events_get", "events_insert", "events_patch", "events_delete", "events_move"),
    *("events_instances", "freebusy_query", "calendarList_list", "calendars_insert", "calendars_patch"),
    *("acl_list", "acl_insert", "acl_delete", "users_list", "users_get", "groups_list", "rooms_list", "finish"),
)
"""Tools that suffice for every task that comes with the environment."""

_PUBLIC_REWARDS = {"list": 0.1, "success": 1.0, "error": -0.5, "bad": -1.0}
_RESET_ARGUMENTS = "seed, episode_id, task, level, task_seed, max_steps and reward"


class CalendarEnvironment(
    EventTools,
    CalendarTools,
    AclTools,
    DirectoryTools,
    Environment[CalendarAction, CalendarObservation, CalendarState],
):
    """One task on a company's calendars an episode.

    The reward is the score of what the calendars are in the end: 1.0 for all that was wanted and nothing else, below
    zero for damage. The episode ends with the tool ``finish``, or after ``max_steps`` calls.

    Args:
        settings: How episodes are played; the defaults if None.
        tasks: Where tasks come from; those that come with the environment if None.

    Example:
        >>> env = CalendarEnvironment()
        >>> print(env.reset(task="create_event", level="easy", task_seed=1).message)
        >>> env.events_list("primary", timeMin="2026-03-02T00:00:00Z", singleEvents=True).resource["items"]
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    # A call takes a millisecond, and the first reset of a task or its scoring some tens: too long for the loop.
    EXECUTION: ClassVar[Literal["auto", "loop", "thread", "process"]] = "thread"
    REPEATABLE: ClassVar[bool] = True

    def __init__(self, settings: CalendarSettings | None = None, tasks: TaskSource | None = None) -> None:
        self._defaults = settings or CalendarSettings()
        self._settings = self._defaults
        self._tasks = tasks or GeneratedTasks()
        self._task: Task | None = None
        self._before: CalendarStore | None = None
        self._store: CalendarStore | None = None
        self._service: CalendarService | None = None
        self._state = CalendarState()
        self._over = False

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | None = None,
        level: str | None = None,
        task_seed: int | None = None,
        max_steps: int | None = None,
        reward: Literal["task", "public"] | None = None,
        **kwargs: Any,
    ) -> CalendarObservation:
        """Begin a task.

        Args:
            seed: Decides what of the task is not given; drawn from the operating system's entropy if None.
            episode_id: A name for the episode; made up if None.
            task: The task's family; drawn by the seed if None.
            level: The task's level; drawn by the seed if None.
            task_seed: Decides the company, its calendars and the user's wish; the seed if None.
            max_steps: Calls after which the episode ends by itself; as on the server if None.
            reward: How reward is given in this episode; as on the server if None.
            **kwargs: Not accepted; any other name is refused.

        Raises:
            ConfigurationError: An unknown argument, or a value that cannot be used. The episode before goes on.
        """
        if kwargs:
            raise ConfigurationError(
                f"The calendar's reset does not know {', '.join(map(repr, sorted(kwargs)))}. It takes "
                f"{_RESET_ARGUMENTS}. What is in the calendars comes of the task, and not of SQL."
            )
        for name, value in (("seed", seed), ("task_seed", task_seed)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise ConfigurationError(f"{name} must be an integer or None, not {value!r}.")
        settings = settings_from({"max_steps": max_steps, "reward": reward}, self._defaults)
        # 48 bits: every JSON reader holds them exactly.
        own_seed = int.from_bytes(os.urandom(6), "big") if seed is None else seed
        world_seed = own_seed if task_seed is None else task_seed
        family = _chosen("task", task, self._tasks.families, own_seed)
        hardness = _chosen("level", level, self._tasks.levels, own_seed // len(self._tasks.families))
        chosen, before = _prepared(self._tasks, family, hardness, world_seed)
        self._give_back()
        self._task, self._before, self._settings, self._over = chosen, before, settings, False
        self._store = before.clone()
        self._service = CalendarService(self._store, chosen.acting_user, chosen.now)
        user = before.user(chosen.acting_user)
        self._state = CalendarState(
            episode_id=os.urandom(16).hex() if episode_id is None else episode_id,
            task_id=chosen.id,
            task=family,
            level=hardness,
            task_seed=world_seed,
            seed=own_seed,
            acting_user=chosen.acting_user,
            now=chosen.now.isoformat(timespec="minutes"),
            time_zone=user["time_zone"] if user is not None else None,
            max_steps=settings.max_steps,
            reward=settings.reward,
        )
        return CalendarObservation(message=chosen.prompt)

    def step(self, action: CalendarAction, timeout_s: float | None = None, **kwargs: Any) -> CalendarObservation:
        """List the tools, or call one.

        Raises:
            SessionStateError: No task is being worked on: call ``reset`` first.
        """
        self._playing()
        if action.action_type == "ListToolsAction":
            offered = self.offered_tools()
            tools = [{"name": t.name, "description": t.description, "inputSchema": t.input_schema} for t in offered]
            return self._end_step(CalendarObservation(tools_list=tools, message=_tools_in_words(offered)), "list")
        if not action.tool_name:
            refusal = invalid("tool_name is required for a ToolCallAction.", "required")
            return self._end_step(_answer(refusal), "bad")
        name, arguments = own_call(action.tool_name, action.arguments or {})
        try:
            observation = self.call_tool(name, arguments)
        except ActionValidationError as error:
            return self._end_step(_answer(invalid(str(error))), "error")
        assert isinstance(observation, CalendarObservation)
        return observation

    @property
    def state(self) -> CalendarState:
        """Which task is worked on, for whom and when, and the number of steps; nothing of what would solve it."""
        return self._state.model_copy()

    @tool
    def finish(
        self,
        message: Annotated[
            str, Field(description="What the user is told: what was done, or the answer asked for.")
        ] = "",
    ) -> CalendarObservation:
        """End the task. Call it once everything is done; what the calendars are then is judged."""
        self._playing()
        return self._end_step(_answer({}, "The task has ended."), "success", last_words=message)

    def use(self, tool_name: str, **arguments: Any) -> CalendarObservation:
        """Take the step that calls a method of the calendar service, with arguments by the API's names.

        Raises:
            SessionStateError: No task is being worked on: call ``reset`` first.
        """
        service = self._playing()
        try:
            resource = service.call(tool_name, {name: plain(value) for name, value in arguments.items()})
        except CalendarError as error:
            return self._end_step(_answer(error), "error")
        return self._end_step(_answer(resource), "success")

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call the tool of that name, where the agent has it.

        Raises:
            ActionValidationError: No such tool, or arguments that do not fit it. Nothing has changed.
        """
        if self._defaults.tools == "core" and name not in CORE_TOOLS:
            raise ActionValidationError(f"Unknown tool: '{name}'. This environment has: {', '.join(CORE_TOOLS)}.")
        if _has_lone_surrogate(arguments):
            self._playing()
            words = "Text holds half a character (a lone surrogate such as \\ud800). Send whole characters."
            return self._end_step(_answer(invalid(words)), "error")
        return super().call_tool(name, arguments)

    @classmethod
    def list_tools(cls) -> list[Tool]:
        """All tools, with schemas in one piece."""
        return [each.model_copy() for each in _readable_tools(cls)]

    def offered_tools(self) -> list[Tool]:
        """The tools that the agent has."""
        return [each for each in self.list_tools() if self._defaults.tools == "all" or each.name in CORE_TOOLS]

    def get_metadata(self) -> EnvironmentMetadata:
        """Name, version and what it is in one sentence."""
        return EnvironmentMetadata(name="calendar_env", description=DESCRIPTION, version="0.1.0")

    def close(self) -> None:
        """Give the calendars' memory back."""
        self._give_back()

    def _give_back(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = self._service = self._task = self._before = None

    def _playing(self) -> CalendarService:
        if self._over:
            raise SessionStateError("This task has ended. Call reset to begin another one.", phase="step")
        if self._service is None:
            raise SessionStateError("No task was begun yet. Call reset before the first step.", phase="step")
        return self._service

    def _end_step(
        self, observation: CalendarObservation, outcome: str, last_words: str | None = None
    ) -> CalendarObservation:
        self._state.step_count += 1
        stopped = last_words is None and self._state.step_count >= self._settings.max_steps
        public = self._settings.reward == "public"
        observation.reward = _PUBLIC_REWARDS[outcome] if public else 0.0
        if last_words is None and not stopped:
            return observation
        score = self._score(last_words or "")
        self._over = True
        observation.done = True
        observation.metadata = {
            "score": {"value": score.value, "parts": score.parts, "collateral": score.collateral},
            **({"truncated": True} if stopped else {}),
        }
        if not public:
            observation.reward = score.value
        return observation

    def _score(self, message: str) -> Score:
        assert self._task is not None
        assert self._before is not None
        assert self._store is not None
        return self._task.score(self._before, self._store, message)


def _answer(answer: dict[str, Any] | CalendarError, message: str | None = None) -> CalendarObservation:
    """A call's answer: the API's resource, or its error."""
    failed = isinstance(answer, CalendarError)
    resource = answer.resource() if isinstance(answer, CalendarError) else answer
    code = answer.code if isinstance(answer, CalendarError) else 200
    text = json.dumps(resource, ensure_ascii=False, separators=(",", ":"))
    words = f"Error {code} ({answer.reason}): {answer.message}" if isinstance(answer, CalendarError) else text
    return CalendarObservation(
        success=not failed,
        error_message=words if failed else None,
        tool_result={"text": text, "status_code": code, "isError": failed},
        message=message or ("Done." if resource == {} else words),
    )


def _has_lone_surrogate(value: Any) -> bool:
    """Whether any text in it cannot be written as UTF-8."""
    if isinstance(value, str):
        return not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, dict):
        return any(_has_lone_surrogate(each) for pair in value.items() for each in pair)
    return isinstance(value, (list, tuple)) and any(map(_has_lone_surrogate, value))


def _chosen(name: str, given: str | None, known: tuple[str, ...], seed: int) -> str:
    if given is None:
        return known[seed % len(known)]
    if given not in known:
        raise ConfigurationError(f"There is no {name} '{given}'. There are: {', '.join(known)}.")
    return given


@lru_cache(maxsize=64)
def _prepared(tasks: TaskSource, family: str, level: str, seed: int) -> tuple[Task, CalendarStore]:
    """A task and the calendars before it, which sessions copy: the generations of one prompt share them."""
    task = tasks.generate(family, level, seed)
    store = CalendarStore(id_seed=task.id)
    task.seed_database(store)
    return task, store


@cache
def _readable_tools(environment: type[CalendarEnvironment]) -> tuple[Tool, ...]:
    listed = super(CalendarEnvironment, environment).list_tools()
    return tuple(each.model_copy(update={"input_schema": readable(each.input_schema)}) for each in listed)


def _tools_in_words(tools: list[Tool]) -> str:
    return "\n".join(f"{each.name}: {each.description}" for each in tools)
