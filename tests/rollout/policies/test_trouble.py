"""Servers that fail: what may pass is waited for within the settings, and what may not is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError, PolicyError
from openenv_trl.rollout import Completion, FailedCompletion, SamplingParameters
from openenv_trl.rollout.policies import (
    EndpointSettings,
    LlamaCppPolicy,
    SglangPolicy,
    TokenServerPolicy,
    VllmPolicy,
)
from openenv_trl.rollout.policies.patience import GiveUp, Patience, Trouble, TryAgain
from openenv_trl.rollout.policies.server_choice import ServerChoice

GREEDY = SamplingParameters(max_new_tokens=2, greedy=True)
SHORT = SamplingParameters(max_new_tokens=2)
QUICK = EndpointSettings(backoff_s=0.01, backoff_max_s=0.05, away_timeout_s=20, busy_timeout_s=20)
PROMPT = [1, 2, 3]


@pytest.fixture
def policy(model_path: Any) -> Callable[..., VllmPolicy]:
    """A policy that asks the server nothing beforehand."""

    def make(url: Any, settings: EndpointSettings = QUICK) -> VllmPolicy:
        return VllmPolicy(url, str(model_path), max_model_length=64, settings=settings)

    return make


troubles = st.sampled_from(list(Trouble))


@given(st.lists(st.tuples(troubles, st.floats(0, 30), st.floats(0, 1), st.none() | st.floats(0, 100)), max_size=60))
def test_a_request_is_tried_again_within_the_time_allowed_and_never_after(
    failures: list[tuple[Trouble, float, float, float | None]],
) -> None:
    settings = EndpointSettings(away_timeout_s=60, busy_timeout_s=20, backoff_s=0.5, backoff_max_s=10)
    patience, now, since, kind = Patience(settings), 0.0, 0.0, None
    for trouble, passed, jitter, retry_after in failures:
        now += passed
        if trouble is not kind:
            since, kind = now, trouble
        decision = patience.failed(trouble, now, jitter, retry_after_s=retry_after)
        allowed = 60.0 if trouble is Trouble.AWAY else 20.0
        if isinstance(decision, GiveUp):
            assert decision.lasted_s == now - since >= allowed
            return
        assert now - since < allowed
        assert 0 <= decision.delay_s <= min(10.0, allowed - (now - since))
        now += decision.delay_s


def test_delays_double_and_keep_half_of_it_to_chance() -> None:
    settings = EndpointSettings(backoff_s=1.0, backoff_max_s=8.0)
    never, always = Patience(settings), Patience(settings)
    assert [never.failed(Trouble.BUSY, 0.0, 0.0) for _ in range(5)] == [TryAgain(s) for s in (0.5, 1, 2, 4, 4)]
    assert [always.failed(Trouble.BUSY, 0.0, 1.0) for _ in range(5)] == [TryAgain(s) for s in (1, 2, 4, 8, 8)]


@given(st.integers(1, 4), st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0, 9)), max_size=80))
def test_the_least_busy_server_of_those_that_answer_is_chosen(
    count: int, events: list[tuple[bool, bool, float]]
) -> None:
    choice, now = ServerChoice(count, avoided_s=5.0), 0.0
    busy, away_until, under_way = [0] * count, [0.0] * count, list[int]()
    for begin, trouble, passed in events:
        now += passed
        if begin or not under_way:
            well = [server for server in range(count) if away_until[server] <= now]
            chosen = choice.choose(now)
            if well:
                assert chosen in well
                assert busy[chosen] == min(busy[server] for server in well)
            busy[chosen] += 1
            under_way.append(chosen)
        else:
            server = under_way.pop(0)
            choice.ended(server, now, trouble=trouble)
            busy[server] -= 1
            away_until[server] = now + 5.0 if trouble else 0.0


def test_equals_take_turns() -> None:
    choice = ServerChoice(3)
    assert sorted(choice.choose(0.0) for _ in range(3)) == [0, 1, 2]
    for server in range(3):
        choice.ended(server, 0.0, trouble=False)
    assert sorted(choice.choose(0.0) for _ in range(3)) == [0, 1, 2]


@pytest.mark.anyio
@pytest.mark.parametrize("fault", [{"fail_next": 3, "status": 503}, {"fail_next": 3, "status": 429}])
async def test_what_passes_is_tried_again(server: Any, policy: Any, fault: dict[str, Any]) -> None:
    server.faults(**fault)
    (found,) = await policy(server.url).generate([PROMPT], SHORT)
    assert isinstance(found, Completion)


@pytest.mark.anyio
async def test_a_failed_generation_leaves_the_others_of_its_batch_alone(server: Any, policy: Any) -> None:
    for fault in ({"fail_next": 1, "status": 500}, {"garble_next": 1}):
        server.faults(**fault)
        found = await policy(server.url).generate([PROMPT] * 4, SHORT)
        failed = [one for one in found if isinstance(one, FailedCompletion)]
        assert [one.retryable for one in failed] == [True]
        assert sum(isinstance(one, Completion) for one in found) == 3


@pytest.mark.anyio
async def test_a_server_that_is_too_busy_for_too_long_fails_the_generation_only(server: Any, policy: Any) -> None:
    server.faults(fail_next=10**6, status=429)
    settings = QUICK.model_copy(update={"busy_timeout_s": 0.1})
    (found,) = await policy(server.url, settings).generate([PROMPT], SHORT)
    assert isinstance(found, FailedCompletion)
    assert found.retryable
    assert "busy_timeout_s" in found.error


@pytest.mark.anyio
async def test_an_answer_that_does_not_come_in_time_is_a_failed_completion(server: Any, policy: Any) -> None:
    server.faults(hold=True)
    settings = QUICK.model_copy(update={"request_timeout_s": 0.2})
    (found,) = await policy(server.url, settings).generate([PROMPT], SHORT)
    assert isinstance(found, FailedCompletion)
    assert "request_timeout_s=0.2" in found.error


@pytest.mark.anyio
async def test_a_server_that_stays_away_ends_the_run_and_is_named(unused_tcp_port: int, policy: Any) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    settings = QUICK.model_copy(update={"away_timeout_s": 0.2})
    with pytest.raises(PolicyError, match=rf"{url} could not be reached.*away_timeout_s"):
        await policy(url, settings).generate([PROMPT], SHORT)


@pytest.mark.anyio
async def test_another_server_takes_over_at_once(server: Any, unused_tcp_port: int, policy: Any) -> None:
    settings = QUICK.model_copy(update={"backoff_s": 60.0, "backoff_max_s": 60.0})
    several = policy([f"http://127.0.0.1:{unused_tcp_port}", server.url], settings)
    with anyio.fail_after(30):
        found = await several.generate([PROMPT] * 8, SHORT)
    assert all(isinstance(one, Completion) for one in found)


@pytest.mark.anyio
@pytest.mark.parametrize(("status", "words"), [(401, "api_key"), (403, "api_key"), (404, "model")])
async def test_what_no_retry_can_mend_is_said_at_once(server: Any, policy: Any, status: int, words: str) -> None:
    server.faults(fail_next=1, status=status)
    with pytest.raises(ConfigurationError, match=words):
        await policy(server.url).generate([PROMPT], SHORT)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [VllmPolicy, SglangPolicy, LlamaCppPolicy])
async def test_an_id_that_the_vocabulary_has_not_is_told_with_the_server(
    server: Any, kind: type[TokenServerPolicy]
) -> None:
    (given,) = await kind(server.url, settings=QUICK).generate([PROMPT], GREEDY)
    assert isinstance(given, Completion)
    highest = max(given.ids)
    (fits,) = await kind(server.url, vocabulary_size=highest + 1, settings=QUICK).generate([PROMPT], GREEDY)
    assert fits == given
    with pytest.raises(ConfigurationError, match=rf"{server.url} gave the token id {highest}.* has {highest} ids"):
        await kind(server.url, vocabulary_size=highest, settings=QUICK).generate([PROMPT], GREEDY)


class Relay:
    """A port before a real server, which breaks its first connections and can cut the idle ones."""

    def __init__(self, url: str, *, breaks: int = 0) -> None:
        self._port = int(url.rsplit(":", 1)[1])
        self._breaks = breaks
        self.accepted = 0
        self.open: list[Any] = []

    async def serve(self, port: int, *, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        async with listener:
            task_status.started()
            await listener.serve(self._relay)

    async def _relay(self, client: Any) -> None:
        self.accepted += 1
        async with client:
            if self.accepted <= self._breaks:
                await client.receive()
                return
            self.open.append(client)
            async with await anyio.connect_tcp("127.0.0.1", self._port) as server, anyio.create_task_group() as group:
                group.start_soon(self._copy, client, server)
                group.start_soon(self._copy, server, client)

    async def _copy(self, source: Any, target: Any) -> None:
        try:
            async for data in source:
                await target.send(data)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        await target.aclose()


@pytest.mark.anyio
async def test_a_connection_that_breaks_in_a_request_is_tried_again(
    server: Any, unused_tcp_port: int, policy: Any
) -> None:
    relay = Relay(server.url, breaks=3)
    async with anyio.create_task_group() as group:
        await group.start(relay.serve, unused_tcp_port)
        async with (broken := policy(f"http://127.0.0.1:{unused_tcp_port}")).opened():
            (found,) = await broken.generate([PROMPT], SHORT)
        group.cancel_scope.cancel()
    assert isinstance(found, Completion)
    assert relay.accepted == 4


@pytest.mark.anyio
async def test_a_server_that_comes_back_is_waited_for(server: Any, unused_tcp_port: int, policy: Any) -> None:
    found: list[Any] = []

    async def ask() -> None:
        found.extend(await policy(f"http://127.0.0.1:{unused_tcp_port}").generate([PROMPT] * 3, SHORT))

    async with anyio.create_task_group() as group:
        async with anyio.create_task_group() as asking:
            asking.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert not found, "nothing listens yet"
            await group.start(Relay(server.url).serve, unused_tcp_port)
        group.cancel_scope.cancel()
    assert [isinstance(one, Completion) for one in found] == [True] * 3


@pytest.mark.anyio
async def test_an_idle_connection_that_the_server_closed_is_no_failure(
    server: Any, unused_tcp_port: int, policy: Any
) -> None:
    relay = Relay(server.url)
    patient = QUICK.model_copy(update={"backoff_s": 60.0, "backoff_max_s": 60.0, "keepalive_s": 600.0})
    async with anyio.create_task_group() as group:
        await group.start(relay.serve, unused_tcp_port)
        async with (one := policy(f"http://127.0.0.1:{unused_tcp_port}", patient)).opened():
            await one.generate([PROMPT], SHORT)
            await one.generate([PROMPT], SHORT)
            assert relay.accepted == 1, "the connection is kept"
            await relay.open[0].aclose()
            with anyio.fail_after(30):
                (found,) = await one.generate([PROMPT], SHORT)
        group.cancel_scope.cancel()
    assert isinstance(found, Completion)
    assert relay.accepted == 2


def test_one_policy_serves_several_event_loops_one_after_another(server: Any, policy: Any) -> None:
    shared = policy(server.url)
    for _ in range(3):
        (found,) = anyio.run(shared.generate, [PROMPT], SHORT)
        assert isinstance(found, Completion)
