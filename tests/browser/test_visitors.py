"""Each visitor for themselves: sessions, waiting, errors, tokens, and the end of it all."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx

Serve = Callable[..., str]


def capacity(address: str) -> dict[str, Any]:
    return httpx.get(f"{address}/capacity").json()


def say(seen: Any, text: str) -> None:
    seen.page.locator("#action-form").get_by_role("textbox").fill(text)
    seen.page.get_by_role("button", name="Step", exact=True).click()


def test_two_visitors_do_not_disturb_each_other(serve: Serve, visit: Callable[..., Any]) -> None:
    address = serve("faulty")
    one, other = visit(address).reset(), visit(address).reset()
    for step in (1, 2, 3):
        say(one, f"mine {step}")
        one.outcome(f"Step {step}")
    say(other, "theirs")
    other.outcome("Step 1")
    assert one.field("text") == "step 3: mine 3"
    assert other.field("text") == "step 1: theirs"
    one.reset()
    say(other, "more")
    other.outcome("Step 2")
    assert other.field("text") == "step 2: more"


def test_two_tabs_of_one_person_are_two_visitors(serve: Serve, visit: Callable[..., Any]) -> None:
    first = visit(serve("faulty")).reset()
    second = type(first)(first.page.context.new_page(), first.address)
    second.load()
    tab = second.page
    tab.get_by_role("button", name="Reset").click()
    tab.locator("#outcome .part").first.wait_for()
    say(first, "first")
    first.outcome("Step 1")
    assert tab.locator("#outcome").inner_text().startswith("Reset")


def test_whoever_only_looks_takes_no_slot_and_a_closed_tab_gives_it_back(
    serve: Serve, visit: Callable[..., Any]
) -> None:
    address = serve("lonely")
    seen = visit(address)
    seen.page.get_by_role("button", name="Reset").wait_for()
    assert capacity(address)["active_sessions"] == 0
    seen.reset()
    assert capacity(address)["active_sessions"] == 1
    assert seen.page.locator("#title").inner_text() == "Only one"
    seen.page.get_by_role("button", name="End session").click()
    seen.page.locator("#sessions:text-is('0 / 1')").wait_for()
    seen.reset()
    other = visit(address)
    other.page.locator("#sessions:text-is('1 / 1')").wait_for()
    seen.page.close()
    other.page.locator("#sessions:text-is('0 / 1')").wait_for()
    other.reset()
    other.page.close()


def test_a_visitor_who_has_to_wait_is_told_and_served_in_turn(serve: Serve, visit: Callable[..., Any]) -> None:
    address = serve("lonely", OPENENV_TRL_MAX_WAITING="5")
    first, second, third = visit(address).reset(), visit(address), visit(address)
    for each in (second, third):
        each.page.get_by_role("button", name="Reset").click()
        each.page.locator("#wait").get_by_text(re.compile("Waiting for a session: all 1 of 1 are in use")).wait_for()
    second.page.locator("#waiting:text-is('2')").wait_for()
    third.page.get_by_role("button", name="Stop").click()
    assert "You stopped waiting" in third.error()
    second.page.locator("#waiting:text-is('1')").wait_for()
    first.page.close()
    second.outcome("Reset")
    assert second.page.locator("#wait").is_hidden()


def test_an_action_that_does_not_fit_is_told_at_its_field_and_the_session_stands(
    serve: Serve, visit: Callable[..., Any]
) -> None:
    seen = visit(serve("taker")).reset()
    form = seen.page.locator("#action-form")
    form.get_by_label("count").fill("11")
    form.get_by_role("group", name="at").get_by_label("x").fill("1")
    form.get_by_label("radius").fill("-1")
    seen.page.get_by_role("button", name="Step", exact=True).click()
    text = seen.error()
    assert "count: Input should be less than or equal to 10" in text
    assert "session stands as before" in text
    assert form.get_by_label("count").get_attribute("aria-invalid") == "true"
    assert form.get_by_label("radius").get_attribute("aria-invalid") == "true"
    assert form.get_by_label("count").evaluate("input => input === document.activeElement")
    form.get_by_label("count").fill("10")
    form.get_by_label("radius").fill("1")
    seen.page.get_by_role("button", name="Step", exact=True).click()
    seen.outcome("Step 1")
    assert seen.page.locator("#error").is_hidden()


def test_what_is_no_number_is_told_before_it_is_sent(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("taker")).reset()
    form = seen.page.locator("#action-form")
    for text, complaint in (("", "count is missing"), ("few", "is no number"), ("1.5", "a whole number is needed")):
        form.get_by_label("count").fill(text)
        seen.page.get_by_role("button", name="Step", exact=True).click()
        assert complaint in seen.error()
    assert seen.page.locator("#log tr td").first.inner_text() == "0"


def test_an_environment_that_raises_leaves_the_episode_as_it_was(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("faulty")).reset()
    assert "render_web failed" in seen.error()
    assert "no paint left" in seen.error()
    assert "web_actions gave something" in seen.error()
    say(seen, "first")
    seen.outcome("Step 1")
    say(seen, "raise")
    seen.page.locator("#error:has-text('the dice are gone')").wait_for()
    assert "session stands as before" in seen.error()
    say(seen, "second")
    seen.outcome("Step 2")
    assert seen.field("text") == "step 2: second"


def test_a_session_that_nobody_uses_ends_and_says_so(serve: Serve, visit: Callable[..., Any]) -> None:
    address = serve("impatient")
    seen = visit(address).reset()
    seen.page.locator("#error:has-text('not used for too long')").wait_for()
    assert capacity(address)["active_sessions"] == 0
    assert seen.page.locator("#session").is_hidden()
    seen.reset()


def test_the_page_asks_for_the_token_and_tells_nothing_before(serve: Serve, visit: Callable[..., Any]) -> None:
    address = serve("lonely", OPENENV_TRL_TOKEN="a-secret-0123456789")
    seen = visit(address)
    seen.expected = ["WebSocket connection", "401"]
    page = seen.page
    page.get_by_label("Token").fill("wrong")
    assert page.locator("#columns").is_hidden()
    page.get_by_role("button", name="Open").click()
    page.get_by_text("The token does not fit.").wait_for()
    page.get_by_label("Token").fill("a-secret-0123456789")
    page.get_by_role("button", name="Open").click()
    seen.reset()
    page.get_by_text("This episode in Python").click()
    page.locator("#snippet:has-text('OPENENV_TRL_TOKEN')").wait_for()
    assert "a-secret" not in page.content()
    page.reload()
    seen.reset()


def test_no_episode_is_played_in_production_mode(serve: Serve, visit: Callable[..., Any]) -> None:
    page = visit(serve("blackjack_env", OPENENV_MODE="production")).page
    page.get_by_text("This server is in production mode").wait_for()
    assert page.locator("#columns").is_hidden()
    assert page.locator("#sessions").inner_text().startswith("0 / ")
