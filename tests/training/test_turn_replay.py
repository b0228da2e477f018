"""TurnReplay knows at every turn which rollouts TRL's loop goes on with."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from openenv_trl.training.turn_replay import TurnReplay

MAX_COMPLETION, MAX_CONTEXT = 12, 18

few_ids = st.lists(st.integers(0, 2), max_size=6)
turn = st.tuples(few_ids, st.booleans(), st.lists(st.integers(0, 2), min_size=1, max_size=6))
rollout = st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=4), st.lists(turn, min_size=4, max_size=4))


@settings(max_examples=300, deadline=None)
@given(st.lists(rollout, min_size=1, max_size=5))
def test_the_rows_are_those_of_the_loop_whatever_is_written_and_answered(rollouts: list) -> None:
    """The loop is played as TRL does it, with rollouts that often look alike; the replay is told ids only."""
    replay = TurnReplay(MAX_COMPLETION, MAX_CONTEXT)
    prompts = [prompt for prompt, _ in rollouts]
    completions: list[list[int]] = [[] for _ in rollouts]
    assert replay.rows_of(prompts) == list(range(len(rollouts)))
    written = [turns[0][0][:MAX_COMPLETION] for _, turns in rollouts]
    assert replay.completed(range(len(rollouts)), written) == written
    for row, ids in enumerate(written):
        completions[row] = list(ids)
    active = [row for row, (_, turns) in enumerate(rollouts) if turns[0][1]]
    replay.calls_in(active)
    for number in range(1, 4):
        suffixes = [rollouts[row][1][number][2] for row in active]
        for row, suffix in zip(active, suffixes, strict=True):
            assert replay.answering == row
            replay.answered(suffix)
        assert replay.answering is None
        contexts = {row: prompts[row] + completions[row] + suffix for row, suffix in zip(active, suffixes, strict=True)}
        active = [
            row
            for row in active
            if len(contexts[row]) - len(prompts[row]) <= MAX_COMPLETION and len(contexts[row]) < MAX_CONTEXT
        ]
        if not active:
            return
        assert replay.rows_of([contexts[row] for row in active]) == active
        new = [rollouts[row][1][number][0] for row in active]
        kept = replay.completed(active, new)
        for row, ids, cut in zip(active, new, kept, strict=True):
            room = MAX_COMPLETION - (len(contexts[row]) - len(prompts[row]))
            assert cut == ids[:room]
            completions[row] = contexts[row][len(prompts[row]) :] + cut
        active = [row for row in active if rollouts[row][1][number][1]]
        replay.calls_in(active)


def test_a_loop_that_does_something_else_is_not_guessed_at() -> None:
    replay = TurnReplay(MAX_COMPLETION, MAX_CONTEXT)
    replay.rows_of([[1], [2]])
    replay.completed([0, 1], [[1], [2]])
    replay.calls_in([0, 1])
    assert replay.rows_of([[1, 1, 9]]) is None, "no answers were rendered"
    replay.answered([9])
    replay.answered([9])
    assert replay.rows_of([[1, 1, 9]]) is None, "one is missing without a reason"
    assert replay.rows_of([[2, 2, 9], [1, 1, 9]]) is None, "another order"
    assert replay.rows_of([[1, 1, 9], [2, 2, 9]]) == [0, 1]


def test_no_room_means_that_not_one_token_more_fits() -> None:
    replay = TurnReplay(2, MAX_CONTEXT)
    replay.rows_of([[1], [1]])
    replay.completed([0, 1], [[1, 1], [1]])
    assert [replay.has_room(row) for row in (0, 1)] == [False, True]
