"""Trajectories for people: groups as a table, one conversation with marks of who wrote what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openenv_trl.rollout.groups import TrajectoryGroup
from openenv_trl.rollout.json_text import json_text
from openenv_trl.rollout.task import Message
from openenv_trl.rollout.trajectory import Trajectory

_MODEL, _ENVIRONMENT, _PROMPT = "green", "cyan", "dim"


def groups_table(groups: Sequence[TrajectoryGroup], *, numbers: Sequence[int] | None = None) -> Table:
    """One row a group: how its rewards spread, who failed, and whether its episodes began alike.

    Where an episode names its environment, as those of a run of several do, there is a column of it.

    Args:
        groups: What to show.
        numbers: What each is called by; their places if None.
    """
    table = Table(title=f"{len(groups)} groups", title_justify="left", box=None, pad_edge=False, header_style="dim")
    named = any(each.environment for group in groups for each in group.trajectories)
    columns = ("#", *(["environment"] if named else []), "group", "episodes", "reward", "std", "advantages")
    for name in (*columns, "failed", "begins"):
        # Of a name that was cut nobody knows which it is.
        cut = name != "environment"
        table.add_column(
            name, justify="right" if name in ("#", "episodes", "reward", "std") else "left", no_wrap=not cut
        )
    for number, group in zip(numbers or range(len(groups)), groups, strict=True):
        begins = len(group.first_observations)
        table.add_row(
            str(number),
            *([Text(group.environment or "-")] if named else []),
            Text("-" if group.name is None else str(group.name)),
            str(len(group.trajectories)),
            _number(group.mean),
            _spread(group),
            _advantages(group),
            _failed(group),
            Text(f"{begins} different", "red") if begins > 1 else Text("alike" if begins else "-"),
        )
    return table


def group_table(group: TrajectoryGroup, *, numbers: Sequence[int] | None = None) -> Table:
    """One row an episode of a group.

    Args:
        group: What to show.
        numbers: What each episode is called by; their places if None.
    """
    where = f" of {group.environment}" if group.environment else ""
    title = f"group {'-' if group.name is None else group.name}{where}: reward {_number(group.mean)} ± {_spread(group)}"
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, header_style="dim")
    for name in ("#", "end", "reward", "advantage", "turns", "tokens", "seconds", "seed"):
        table.add_column(name, justify="left" if name == "end" else "right")
    begins = group.first_observations
    if len(begins) > 1:
        table.add_column("first observation")
    elif begins:
        table.caption, table.caption_justify = Text(f"all begin: {_one_line(next(iter(begins)), 200)}"), "left"
    rows = zip(group.trajectories, group.rewards, group.advantages, strict=True)
    for number, (trajectory, reward, advantage) in zip(numbers or range(len(group.rewards)), rows, strict=True):
        table.add_row(
            str(number),
            Text(trajectory.end_reason.value, "red" if trajectory.end_reason.is_failure else ""),
            _number(reward),
            f"{advantage:+.2f}",
            str(len(trajectory.turns)),
            str(sum(trajectory.mask)),
            f"{trajectory.ended_s - trajectory.started_s:.2f}",
            "-" if trajectory.seed is None else str(trajectory.seed),
            *([Text(_one_line(trajectory.first_observation, 60))] if len(begins) > 1 else []),
        )
    return table


def conversation(trajectory: Trajectory) -> Group:
    """One episode as it was said, each part under who wrote it: the prompt, the environment, or the model."""
    parts: list[RenderableType] = [_heading(trajectory)]
    spoken = 0
    for message in trajectory.messages:
        role = str(message.get("role"))
        if role == "assistant":
            turn = trajectory.turns[spoken] if spoken < len(trajectory.turns) else None
            spoken += 1
            said = f"model, turn {spoken}"
            if turn is not None:
                said += f": {turn.completion_tokens} tokens, {turn.generate_s:.2f} s"
                given = [reward for reward in turn.rewards if reward is not None]
                said += f"; environment {turn.environment_s:.2f} s"
                said += f"; reward {', '.join(f'{reward:+g}' for reward in given)}" if given else ""
                said += "; done" if turn.done else ""
            parts.append(_part("█", said, _words(message), _MODEL))
        elif spoken:
            name = message.get("name")
            parts.append(_part("│", f"environment{f' ({name})' if name else ''}", _words(message), _ENVIRONMENT))
        else:
            parts.append(_part("·", f"prompt ({role})", _words(message), _PROMPT))
    if trajectory.turns and trajectory.turns[-1].done:
        # What ended the episode is no message: nobody reads it any more.
        missing = trajectory.turns[-1].observations
        shown = trajectory.messages[-1].get("content") if trajectory.messages else None
        if missing and missing[-1] != shown:
            parts.append(_part("│", "environment, at the end", missing[-1], _ENVIRONMENT))
    return Group(*parts)


def _heading(trajectory: Trajectory) -> Text:
    text = Text(f"{trajectory.end_reason.value}", "bold red" if trajectory.end_reason.is_failure else "bold")
    text.append(f"  {trajectory.environment}" if trajectory.environment else "", "not bold")
    text.append(f"  reward {_number(trajectory.reward)}", "not bold")
    for source, reward in trajectory.rewards.items():
        text.append(f"  {source} {_number(reward)}", "dim")
    text.append(f"\n{len(trajectory.turns)} turns, {sum(trajectory.mask)} tokens of the model, ", "not bold")
    text.append(f"{len(trajectory.mask) - sum(trajectory.mask)} of the environment; ", "not bold")
    text.append(f"waiting {trajectory.waiting_s:.2f} s, reset {trajectory.reset_s:.2f} s, ", "not bold")
    text.append(f"generate {trajectory.generate_s:.2f} s, step {trajectory.environment_s:.2f} s", "not bold")
    text.append(f"\nreset({', '.join(f'{k}={v!r}' for k, v in trajectory.task.reset.items())})", "dim")
    if trajectory.versions:
        spans = ", ".join(f"{version} from {start}" for start, version in trajectory.versions)
        text.append(f"  weights {spans}", "dim")
    for failure in trajectory.failures:
        text.append(f"\nearlier attempt: {failure}", "red")
    if trajectory.error:
        text.append(f"\n{trajectory.error}", "red")
    return text


def _part(bar: str, who: str, words: str, colour: str) -> Text:
    """A mark beside every line, so that it is seen without colours too."""
    text = Text(f"\n{bar} {who}\n", f"bold {colour}")
    for line in words.splitlines() or [""]:
        text.append(f"{bar} ", colour)
        text.append(f"{line}\n", f"not bold {colour}")
    text.rstrip()
    return text


def _words(message: Message) -> str:
    """A message's content and tool calls."""
    content: Any = message.get("content")
    words = content if isinstance(content, str) else "" if content is None else json_text(content)
    thoughts = message.get("reasoning_content") or message.get("thinking")
    lines = [f"(thinks) {thoughts}"] if thoughts else []
    lines += [words] if words else []
    lines += [_call(each) for each in cast("list[Any]", message.get("tool_calls") or [])]
    return "\n".join(lines)


def _call(call: Any) -> str:
    fields = _fields(call)
    function = _fields(fields["function"]) if "function" in fields else fields
    identity = f" [{fields['id']}]" if "id" in fields else ""
    return f"→ {function.get('name', call)}({json_text(function.get('arguments'))}){identity}"


def _fields(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _advantages(group: TrajectoryGroup) -> Text:
    if not group.teaches:
        return Text("all 0", "yellow")
    return Text(f"{min(group.advantages):+.2f} to {max(group.advantages):+.2f}")


def _failed(group: TrajectoryGroup) -> Text:
    reasons = [each.end_reason.value for each in group.failed]
    counts = {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}
    return Text(", ".join(f"{reason} {count}" for reason, count in counts.items()) or "-", "red" if counts else "")


def _spread(group: TrajectoryGroup) -> str:
    return "-" if group.std is None else f"{group.std:.3f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"


def _one_line(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"
