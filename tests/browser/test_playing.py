"""Whole episodes by mouse and keyboard: typed actions, tools, every kind of field."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from openenv_trl.client import GenericEnvClient

Serve = Callable[..., str]


def played(address: str, seed: int, action: dict[str, Any]) -> Any:
    """What our client sees after one action; in a thread, since Playwright's event loop runs in this one."""

    def play() -> Any:
        with GenericEnvClient(address).sync() as env:
            env.reset(seed=seed)
            return env.step(action)

    with ThreadPoolExecutor() as threads:
        return threads.submit(play).result()


def test_a_hand_of_blackjack_is_played_to_its_end_by_forms(serve: Serve, visit: Callable[..., Any]) -> None:
    address = serve("blackjack_env")
    expected = played(address, 1, {"move": "stand"})
    seen = visit(address).reset(seed="1")
    page = seen.page
    assert page.url.endswith("/web/")
    assert seen.field("message") == "Your hand: 9, 10. Sum 19, no usable ace. The dealer shows 2."
    page.locator("#action-form").get_by_label("move").select_option("stand")
    page.get_by_role("button", name="Step", exact=True).click()
    seen.outcome("done")
    seen.outcome(f"Reward {expected.reward:g}")
    assert seen.field("message") == expected.observation["message"]
    assert page.locator("#chart svg").get_attribute("aria-label").startswith("Reward over 1 steps")
    rows = page.locator("#log tr")
    assert rows.count() == 2
    assert 'move="stand"' in rows.first.inner_text()
    assert "seed=1" in rows.last.inner_text()
    assert '"seed": 1' in page.locator("#state").text_content()


def test_an_action_that_is_one_choice_needs_one_click_or_one_key(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("blackjack_env")).reset(seed="1")
    seen.page.get_by_role("toolbar").get_by_role("button", name="stand").click()
    seen.outcome("done")
    seen.reset(seed="1")
    seen.page.get_by_role("toolbar").get_by_role("button", name="hit").focus()
    seen.page.keyboard.press("2")
    seen.outcome("done")
    assert 'move="stand"' in seen.page.locator("#log tr").first.inner_text()


def focused(seen: Any) -> str:
    return seen.page.evaluate("document.activeElement.dataset.label ?? document.activeElement.textContent")


def test_steps_are_taken_one_after_another_by_keys_alone(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("painter")).reset()
    assert focused(seen) == "Paint red"
    for step, key in enumerate("213", start=1):
        seen.page.keyboard.press(key)
        seen.outcome(f"Step {step}")
        assert focused(seen) == "Paint red"
    calls = seen.page.locator("#log td.call").all_inner_texts()
    assert calls == ['color="blue"', 'color="red"', 'color="green"', "reset"]


def test_an_episodes_end_leaves_the_keyboard_at_reset(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("blackjack_env")).reset(seed="1")
    seen.page.keyboard.press("2")
    seen.outcome("done")
    assert focused(seen) == "Reset"
    seen.page.keyboard.press("Enter")
    seen.outcome("Reset")
    assert focused(seen) == "hit"
    form = seen.page.locator("#action-form")
    form.get_by_label("move").select_option("hit")
    form.get_by_role("button", name="Step", exact=True).focus()
    seen.page.keyboard.press("Enter")
    seen.outcome("Step 1")
    assert focused(seen) == "Step"


def test_a_form_takes_no_step_before_the_first_reset(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("faulty"))
    text = seen.page.locator("#action-form").get_by_role("textbox")
    text.fill("too early")
    text.press("Enter")
    assert seen.page.locator("#action-form button[type=submit]").get_attribute("aria-disabled") == "true"
    seen.reset()
    assert seen.page.locator("#log tr").count() == 1


def test_many_tools_are_a_list_and_a_choice_that_needs_more_has_no_buttons(
    serve: Serve, visit: Callable[..., Any]
) -> None:
    seen = visit(serve("toolbox")).reset(seed="3", episode_id="named")
    assert seen.field("text") == "(3, 'named')"
    page = seen.page
    assert page.get_by_role("tab").count() == 0
    assert page.locator("#buttons").is_hidden()
    page.get_by_label("Way to act").select_option("turn_7")
    assert page.locator("#action-form form:visible").count() == 1
    page.locator("#action-form").get_by_label("by").locator("visible=true").fill("2")
    page.get_by_role("button", name="Call turn_7").click()
    seen.outcome("Step 1")
    assert "turn_7 by 2" in page.locator("#fields").inner_text()


def test_tools_have_forms_of_their_own(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("echo_env")).reset()
    page = seen.page
    page.get_by_role("tab", name="echo_with_length").click()
    page.get_by_role("tabpanel", name="echo_with_length").get_by_role("textbox", name="message").fill(
        "größer & <b>mehr</b>"
    )
    page.keyboard.press("Enter")
    seen.outcome("Step 1")
    assert '"length": 20' in seen.field("result")
    page.get_by_role("tab", name="echo_with_length").press("ArrowLeft")
    assert page.get_by_role("tab", name="echo_message").get_attribute("aria-selected") == "true"
    page.get_by_role("tabpanel", name="echo_message").get_by_role("textbox", name="message").fill("again")
    page.get_by_role("button", name="Call echo_message").click()
    seen.outcome("Step 2")
    assert "again" in seen.field("result")


def test_every_kind_of_field_arrives_as_it_was_filled_in(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("taker")).reset(level="7")
    assert json.loads(seen.field("action")) == {"level": 7, "seed": None}
    form = seen.page.locator("#action-form")
    form.get_by_text("more options").click()
    form.get_by_label("count").fill("4")
    form.get_by_label("weight").fill("-1.25e-2")
    form.get_by_label("loud").check()
    form.get_by_label("size").select_option("large")
    form.get_by_label("note").fill("two words")
    form.get_by_role("group", name="at").get_by_label("x").fill("-3")
    for text in ("a", "b"):
        form.get_by_role("button", name="Add to tags").click()
        seen.page.keyboard.type(text)
    form.get_by_label("Kind of span").select_option("list")
    for part, value in (("span 1", "2"), ("span 2", "4")):
        form.get_by_label(part).fill(value)
    form.get_by_label("Kind of shape").select_option("Box")
    form.get_by_role("button", name="Add to corners").click()
    form.get_by_role("group", name="corners 1").get_by_label("x").fill("1")
    form.get_by_label("extra (JSON)").fill('{"deep": [1, {"er": null}]}')
    seen.page.get_by_role("button", name="Step", exact=True).click()
    seen.outcome("Step 1")
    text = seen.page.locator("#raw").text_content()
    assert json.loads(text)["observation"]["action"] == {
        "count": 4,
        "weight": -0.0125,
        "loud": True,
        "size": "large",
        "note": "two words",
        "at": {"x": -3, "y": 0},
        "tags": ["a", "b"],
        "span": [2, 4],
        "shape": {"kind": "box", "corners": [{"x": 1, "y": 0}]},
        "extra": {"deep": [1, {"er": None}]},
    }


def test_what_is_left_as_it_is_is_not_sent_and_json_says_the_same_as_the_form(
    serve: Serve, visit: Callable[..., Any]
) -> None:
    seen = visit(serve("taker")).reset()
    form = seen.page.locator("#action-form")
    form.get_by_label("count").fill("2")
    form.get_by_role("group", name="at").get_by_label("x").fill("5")
    form.get_by_label("radius").fill("1.5")
    form.get_by_role("button", name="JSON", exact=True).click()
    raw = form.get_by_label("Step as JSON")
    written = {"count": 2, "at": {"x": 5}, "shape": {"kind": "circle", "radius": 1.5}}
    assert json.loads(raw.input_value()) == written
    raw.fill(json.dumps({**written, "tags": ["z"], "shape": {"kind": "box", "corners": []}}))
    form.get_by_role("button", name="JSON", exact=True).click()
    assert form.get_by_role("textbox", name="tags 1").input_value() == "z"
    assert form.get_by_label("Kind of shape").locator("option:checked").inner_text() == "Box"
    form.get_by_role("button", name="JSON", exact=True).click()
    seen.page.get_by_role("button", name="Step", exact=True).click()
    seen.outcome("Step 1")
    received = json.loads(seen.page.locator("#raw").text_content())["observation"]["action"]
    assert (received["tags"], received["shape"]) == (["z"], {"kind": "box", "corners": []})


def test_the_python_program_plays_the_same_episode(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("blackjack_env")).reset(seed="11")
    seen.page.get_by_role("toolbar").get_by_role("button", name="hit").click()
    seen.outcome("Step 1")
    seen.page.get_by_text("This episode in Python").click()
    program = seen.page.locator("#snippet:has-text('GenericEnvClient')").text_content()
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert repr(seen.field("message"))[1:-1] in ran.stdout


def test_the_python_program_has_the_seed_that_was_drawn(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("atari_env", ATARI_OBS_TYPE="text")).reset()
    seed = json.loads(seen.page.locator("#state").text_content())["seed"]
    seen.page.get_by_text("This episode in Python").click()
    seen.page.locator(f"#snippet:has-text('env.reset(seed={seed})')").wait_for()
    kinds = seen.page.locator("#reset-form").get_by_label("obs_type").locator("option").all_inner_texts()
    assert kinds[:3] == ["rgb", "grayscale", "ram"]


def test_the_log_can_be_taken_away_as_a_file(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("blackjack_env")).reset(seed="1")
    seen.page.get_by_role("toolbar").get_by_role("button", name="stand").click()
    seen.outcome("done")
    with seen.page.expect_download() as waiting:
        seen.page.get_by_role("button", name="Download JSON").click()
    log = json.loads(waiting.value.path().read_text())
    assert log["environment"] == "blackjack_env"
    assert [(each["call"], each["input"]) for each in log["calls"]] == [
        ("reset", {"seed": 1}),
        ("step", {"move": "stand"}),
    ]
    assert log["calls"][0]["observation"]["player_cards"] == [9, 10]
    assert log["calls"][1]["done"] is True


def test_readme_and_metadata_are_shown(serve: Serve, visit: Callable[..., Any]) -> None:
    page = visit(serve("blackjack_env")).page
    page.locator("#readme-card > summary").click()
    page.locator("#readme table").first.wait_for()
    assert page.locator("#readme h3").count() >= 1
    assert not re.search(r"^---", page.locator("#readme").inner_text())
    page.locator("#metadata-card > summary").click()
    assert "Blackjack" in page.locator("#metadata").inner_text()
