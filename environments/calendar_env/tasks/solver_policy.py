"""The solvers as a policy that speaks in messages: to collect games to learn from, and to test rollouts.

A solver is a plain function that calls tools and waits for their answers, and a policy gives one message at a time. So
the solver is run anew for each message, with the answers that the conversation holds, up to the first call that has
none yet: that call is the message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calendar_env.tasks.solvers import Refused, solve
from calendar_env.tasks.solvers.desk import Resource
from calendar_env.tasks.task import GeneratedTask

Message = dict[str, Any]


class SolverMessages:
    """Says what the solver would say next.

    Args:
        tasks: The tasks that will be played; each is known by its prompt, which a conversation begins with.

    Example:
        >>> policy = ScriptedMessagePolicy(SolverMessages([generate("find_slot", "easy", 3)]))
    """

    def __init__(self, tasks: Iterable[GeneratedTask]) -> None:
        self._tasks = list(tasks)

    def __call__(self, messages: Sequence[Mapping[str, Any]]) -> Message:
        """The next message of the conversation.

        Raises:
            LookupError: The conversation is about none of the tasks.
        """
        told = "\n".join(str(each["content"]) for each in messages if each["role"] == "user")
        task = next((each for each in self._tasks if each.prompt in told), None)
        if task is None:
            raise LookupError("The conversation begins with the prompt of none of the tasks that were given.")
        answers = [str(each["content"]) for each in messages if each["role"] == "tool"]
        try:
            said = solve(task, _Told(answers))
        except _Unanswered as call:
            return _calling(len(answers), call.tool, call.arguments)
        return _calling(len(answers), "finish", {"message": said})


class _Unanswered(Exception):
    """A call that the conversation holds no answer to."""

    def __init__(self, tool: str, arguments: Resource) -> None:
        super().__init__(tool)
        self.tool, self.arguments = tool, arguments


class _Told:
    """Tools whose answers have been given before."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = iter(answers)

    def call(self, tool: str, arguments: Resource) -> Resource:
        answer = next(self._answers, None)
        if answer is None:
            raise _Unanswered(tool, arguments)
        refused = re.match(r"Error (\d+) ", answer)
        if refused:
            raise Refused(int(refused[1]), answer)
        return {} if answer == "Done." else json.loads(answer)


def _calling(number: int, tool: str, arguments: Resource) -> Message:
    call = {"type": "function", "id": f"call{number:05d}", "function": {"name": tool, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}
