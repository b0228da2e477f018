"""Lines out of pieces, and the reason of a death out of events: without an engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.providers.docker.container_state import ContainerState, OutputLines, size


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])), max_size=8), st.data())
def test_lines_come_out_as_they_were_written_however_they_were_cut(lines: list[str], data: st.DataObject) -> None:
    written = "".join(f"{line}\n" for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=6)))
    output, found = OutputLines(), []
    for begin, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
        found += output.feed(1, written[begin:end])
    assert found + output.end() == lines


def test_the_two_streams_do_not_cut_one_anothers_lines() -> None:
    output = OutputLines()
    assert output.feed(1, b"dealt ") == []
    assert output.feed(2, b"warning\n") == ["warning"]
    assert output.feed(1, b"ace\r\nhit") == ["dealt ace"]
    assert output.end() == ["hit"]


def test_a_line_without_an_end_is_cut_and_does_not_fill_the_memory() -> None:
    output = OutputLines()
    lines = output.feed(1, b"x" * 40_000)
    assert [len(line) for line in lines] == [16_384, 16_384]
    assert len(output.end()[0]) == 40_000 - 2 * 16_384


@pytest.mark.parametrize(
    ("events", "code", "memory", "reason"),
    [
        (["oom"], 137, 64 * 1024**2, "out of memory (limit 64 MiB; raise memory)"),
        (["oom"], 137, None, "out of memory (the engine's machine has no more)"),
        # What ran out of memory was a child, which the server has outlived.
        (["oom"], 1, 64 * 1024**2, ""),
        (["kill"], 137, 2048, "exit code 137: somebody ended it through the Docker engine"),
        (["kill"], 0, None, "exit code 0: somebody ended it through the Docker engine"),
        ([], 137, None, "exit code 137: it was killed"),
        ([], 137, 2048, "exit code 137: it was killed, perhaps for want of memory, of which it may use 2 KiB"),
        ([], 139, None, "exit code 139 (SIGSEGV)"),
        ([], 143, None, "exit code 143 (SIGTERM)"),
        ([], 255, None, ""),
        ([], 0, None, ""),
    ],
)
def test_the_reason_of_a_death(events: list[str], code: int, memory: int | None, reason: str) -> None:
    state = ContainerState("id", "table-0", memory)
    assert not any(state.take_event(event, {"signal": "15"}) for event in events)
    assert state.take_event("die", {"exitCode": str(code)})
    assert (state.exit_code, state.reason) == (code, reason)


def test_a_death_is_taken_once_whoever_tells_of_it_first() -> None:
    state = ContainerState("id", "table-0")
    assert state.lose("the engine went")
    assert not state.take_event("die", {"exitCode": "0"})
    assert not state.lose("again")
    assert (state.exit_code, state.reason) == (None, "the engine went")
    assert not state.take_event("destroy", {})
    assert state.gone.is_set()


def test_sizes_are_written_as_a_person_writes_them() -> None:
    assert [size(each) for each in (None, 1, 1536, 64 * 1024**2, 3 * 1024**3)] == [
        "no limit",
        "1 B",
        "1.5 KiB",
        "64 MiB",
        "3 GiB",
    ]
