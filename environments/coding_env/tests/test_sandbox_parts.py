"""The sandbox's pure parts: they take bytes and the time, and decide."""

from __future__ import annotations

import json
from collections import deque
from datetime import timezone

import pytest
from coding_env.sandbox.exchange import GRACE_S, READY_TIMEOUT_S, Exchange, Step
from coding_env.sandbox.inside import frames, values
from coding_env.sandbox.inside.judge import Remote
from coding_env.sandbox.layers import Level, SandboxReport
from coding_env.sandbox.limits import Limits
from coding_env.sandbox.output import CappedOutput
from coding_env.server import rules
from coding_env.server.settings import EpisodeSettings, episode_settings, settings_from_variables
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError

LIMITS = Limits(output_bytes=256, discarded_mb=1)


def exchange(timeout_s: float = 10.0, *, interruptible: bool = True) -> Exchange:
    made = Exchange(1, LIMITS, timeout_s, interruptible, 0.0)
    made.ready(0.0)
    return made


def test_a_run_is_interrupted_first_and_killed_a_moment_later() -> None:
    run = exchange()
    assert run.tick(9.9) is Step.WAIT
    assert run.tick(10.0) is Step.INTERRUPT
    assert run.tick(10.0) is Step.WAIT
    assert run.tick(10.0 + GRACE_S) is Step.KILL
    assert run.timed_out
    assert run.over


def test_a_run_that_ends_after_the_interrupt_is_no_failure() -> None:
    run = exchange()
    run.tick(10.0)
    assert run.frame_bytes(frames.pack({"id": 1, "exit_code": 1}), 10.1) is Step.DONE
    assert run.timed_out
    assert not run.failure


def test_time_begins_when_the_worker_is_ready() -> None:
    run = Exchange(1, LIMITS, 1.0, True, 0.0)
    assert run.tick(READY_TIMEOUT_S - 1) is Step.WAIT
    run.frame_bytes(frames.pack({"ready": True}), READY_TIMEOUT_S - 1)
    assert run.tick(READY_TIMEOUT_S - 0.5) is Step.WAIT
    assert run.tick(READY_TIMEOUT_S) is Step.INTERRUPT
    never = Exchange(1, LIMITS, 1.0, True, 0.0)
    assert never.tick(READY_TIMEOUT_S) is Step.KILL
    assert not never.timed_out


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 8, b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x01{", b"\x00\x00\x00\x04\xff\xff\xff\xff"]
)
def test_what_is_no_frame_kills_the_run(garbage: bytes) -> None:
    run = exchange()
    assert run.frame_bytes(garbage, 1.0) is Step.KILL
    assert "channel" in run.failure


def test_messages_that_nobody_waits_for_kill_the_run() -> None:
    for stray in ({"id": 0}, {"id": 2}, {"ready": True}, {}):
        run = exchange()
        assert run.frame_bytes(frames.pack(stray), 1.0) is Step.KILL
    judged = Exchange(1, LIMITS, 10.0, False, 0.0, messages=2)
    judged.ready(0.0)
    assert judged.frame_bytes(frames.pack({"number": 0}) + frames.pack({"number": 1}), 1.0) is Step.WAIT
    assert [message["number"] for message in judged.others] == [0, 1]
    assert judged.frame_bytes(frames.pack({"number": 2}), 1.0) is Step.KILL


def test_output_without_end_kills_the_run_and_its_ends_are_kept() -> None:
    run = exchange()
    assert run.output(b"begin" + b"x" * 1000, error=False) is Step.WAIT
    assert run.output(b"y" * (1 << 20), error=True) is Step.KILL
    assert run.out.text().startswith("begin")
    assert len(run.out.text()) < 400


@pytest.mark.parametrize(
    ("code", "words"), [(-24, "processor time"), (-9, "too much"), (-11, "signal 11"), (3, "code 3")]
)
def test_the_end_of_a_worker_is_told_in_words(code: int, words: str) -> None:
    run = exchange()
    run.ended(code)
    assert words in run.failure


@given(pieces=st.lists(st.binary(max_size=300), max_size=20), limit=st.integers(min_value=2, max_value=200))
def test_output_keeps_its_beginning_and_its_end(pieces: list[bytes], limit: int) -> None:
    output, whole = CappedOutput(limit), b"".join(pieces)
    for piece in pieces:
        output.feed(piece)
    assert output.total == len(whole)
    if len(whole) <= limit:
        assert output.text() == whole.decode("utf-8", "replace")
    else:
        missing = f"[... {len(whole) - limit} bytes left out ...]"
        assert missing in output.text()
        assert output.text().startswith(whole[: limit - limit // 2].decode("utf-8", "replace"))
        assert output.text().endswith(whole[-(limit // 2) :].decode("utf-8", "replace"))


@given(messages=st.lists(st.dictionaries(st.text(), st.integers() | st.text()), max_size=5), cut=st.integers(1, 9))
def test_frames_come_out_as_they_went_in_whatever_the_pieces(messages: list[dict[str, object]], cut: int) -> None:
    data = b"".join(frames.pack(message) for message in messages)
    unpacker, found = frames.Unpacker(1 << 20), list[object]()
    for start in range(0, len(data), cut):
        found += unpacker.feed(data[start : start + cut])
    assert found == messages


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.datetimes(timezones=st.none() | st.just(timezone.utc))
    | st.dates()
    | st.times()
    | st.timedeltas(),
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(deque) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner)
    ),
    max_leaves=20,
)


def travelled(value: object) -> object:
    def keep(held: object) -> object:
        raise AssertionError(held)

    return values.decode(json.loads(json.dumps(values.encode(value, keep))), keep)


@given(value=PLAIN)
def test_data_travels_between_solution_and_judge_as_it_is(value: object) -> None:
    assert travelled(value) == value
    assert type(travelled(value)) is type(value)


def test_a_subclass_travels_as_its_plain_base() -> None:
    class Same(int):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    class Text(str):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    assert type(travelled(Same(3))) is int
    assert travelled([Same(3)]) != [4]
    assert type(travelled(Text("a"))) is str
    assert {1, 2} == travelled({1, 2})


def test_what_is_no_data_is_equal_to_none() -> None:
    class Solution:
        def ask(self, *asked: object) -> bool:
            return True

    remote = Remote(Solution(), 1, "Same")  # pyright: ignore[reportArgumentType]
    assert remote != 4
    assert 4 != remote  # noqa: SIM300
    assert remote not in [1, "a", None]
    with pytest.raises(TypeError):
        _ = remote > 3
    assert remote == Remote(Solution(), 2, "Same")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("layers", "level"),
    [
        (["processes", "files", "network", "landlock", "seccomp"], Level.STRONG),
        (["user", "processes", "files", "network", "seccomp"], Level.STRONG),
        (["landlock", "seccomp"], Level.PARTIAL),
        (["files", "seccomp"], Level.PARTIAL),
        (["seccomp"], Level.WEAK),
        (["files", "processes", "network"], Level.NONE),
        ([], Level.NONE),
    ],
)
def test_the_level_follows_from_the_layers(layers: list[str], level: Level) -> None:
    assert SandboxReport(layers=layers, missing={}).level is level


def test_settings_come_from_variables_and_a_wrong_one_is_named() -> None:
    variables = {
        "CODING_MAX_STEPS": "7",
        "CODING_MEMORY_MB": "256",
        "CODING_MIN_LEVEL": "partial",
        "CODING_PACKAGES": "/usr:/tmp",
    }
    episode, sandbox = settings_from_variables(variables)
    assert episode.max_steps == 7
    assert (sandbox.limits.memory_mb, sandbox.min_level, sandbox.packages) == (256, Level.PARTIAL, ("/usr", "/tmp"))
    for name, value in {"CODING_MEMORY_MB": "3", "CODING_MIN_LEVEL": "iron", "CODING_REWARD": "luck"}.items():
        with pytest.raises(ConfigurationError, match=name.removeprefix("CODING_").lower()):
            settings_from_variables({name: value})
    with pytest.raises(ConfigurationError, match="max_steps"):
        episode_settings({"max_steps": 0}, EpisodeSettings())


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CODING_PACKAGES": "/no/such/folder"}, "'/no/such/folder', which is no folder"),
        ({"CODING_IMPORTS": "numpy"}, "for the executor smolagents only"),
        ({"CODING_SESSION_MEMORY_MB": "256"}, r"session_memory_mb \(256\) must be at least memory_mb \(512\)"),
        ({"CODING_CONCURRENT_GRADINGS": "0"}, "concurrent_gradings"),
    ],
)
def test_settings_that_would_do_nothing_or_harm_are_refused(variables: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        settings_from_variables(variables)


def test_a_variable_that_is_no_setting_is_warned_of_with_the_one_that_may_be_meant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert settings_from_variables({"CODING_MAX_STEP": "7", "PATH": "/bin"}) == settings_from_variables({})
    assert [record.message for record in caplog.records] == [
        "CODING_MAX_STEP is no setting of the coding environment, and changes nothing. Did you mean CODING_MAX_STEPS?"
    ]


@pytest.mark.parametrize(
    ("code", "reward"),
    [
        ("x = 1", 0.1),
        ("x = 1\n" * 40, 0.0),
        ("import os", -0.9),
        ("print(", -0.1),
        ("open('a')  # " + "x" * 100, -1.0),
        ("eval(", -1.1),
    ],
)
def test_the_public_rules_reward_what_they_reward(code: str, reward: float) -> None:
    assert rules.reward(code) == pytest.approx(reward)
