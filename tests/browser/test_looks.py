"""What is shown: pictures pixel by pixel, hostile texts as texts, on a phone, without a mouse."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from PIL import Image

Serve = Callable[..., str]

PIXELS = """canvas => [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data]"""


def colors_of(locator: Any) -> set[tuple[int, int, int]]:
    """The colours that a person sees there; the edges, with their border, left out."""
    with Image.open(io.BytesIO(locator.screenshot())) as picture:
        inner = picture.convert("RGB").crop((6, 6, picture.width - 6, picture.height - 6))
        return {pixel for _, pixel in inner.getcolors(1 << 20)}


@pytest.mark.parametrize("app", ["painter", "painter_elsewhere"])
def test_arrays_and_data_urls_are_seen_as_pictures(serve: Serve, visit: Callable[..., Any], app: str) -> None:
    seen = visit(serve(app)).reset(color="green")
    page = seen.page
    page.get_by_text("Pictures in the observation").click()
    pixels = page.locator("figure:has(figcaption:text-is('pixels')) canvas")
    assert pixels.evaluate("canvas => [canvas.width, canvas.height]") == [30, 20]
    row = [0, 255, 0, 255] * 15 + [0, 0, 0, 255] * 15
    assert pixels.evaluate(PIXELS) == row * 20
    assert colors_of(pixels) == {(0, 255, 0), (0, 0, 0)}
    gray = page.locator("figure:has(figcaption:text-is('gray')) canvas").evaluate(PIXELS)
    assert gray == [value for each in range(400) for value in (*[each % 256 % 200] * 3, 255)]
    flat = page.locator("figure:has(figcaption:text-is('flat')) canvas")
    assert flat.evaluate("canvas => [canvas.width, canvas.height]") == [4, 3]
    assert flat.evaluate(PIXELS) == [0, 255, 0, 255] * 12
    png = page.locator("figure:has(figcaption:text-is('png')) img")
    seen.until(lambda: png.evaluate("image => image.complete && image.naturalWidth") == 4)
    inside = page.frame_locator("iframe")
    assert inside.locator("#seen").inner_text() == "[3, 4, 3]"
    now = inside.locator("img[alt=now]")
    seen.until(lambda: now.evaluate("image => image.complete && image.naturalWidth") == 4)


def test_a_click_on_an_offered_action_changes_the_picture(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("painter")).reset()
    seen.page.get_by_text("Pictures in the observation").click()
    pixels = seen.page.locator("figure:has(figcaption:text-is('pixels')) canvas")
    assert colors_of(pixels) == {(255, 0, 0), (0, 0, 0)}
    toolbar = seen.page.get_by_role("toolbar")
    for step, (name, color) in enumerate([("blue", (0, 0, 255)), ("green", (0, 255, 0))], start=1):
        toolbar.get_by_role("button", name=f"Paint {name}").click()
        seen.outcome(f"Step {step}")
        assert colors_of(pixels) == {color, (0, 0, 0)}
    chart = seen.page.locator("#chart svg")
    assert chart.get_attribute("aria-label") == "Reward over 2 steps; the last 1, the sum 0.5."
    assert (chart.locator("rect.gain").count(), chart.locator("rect.loss").count()) == (1, 1)


def test_blackjacks_cards_lie_on_the_table(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("blackjack_env")).reset(seed="1")
    inside = seen.page.frame_locator("#rendered iframe")
    seen.until(lambda: inside.locator(".card").all_inner_texts() == ["2", "", "9", "10"])
    frame = seen.page.locator("#rendered iframe")
    heights = "frame => [frame.clientHeight, frame.contentDocument?.body?.scrollHeight]"

    def fits() -> bool:
        shown, whole = frame.evaluate(heights)
        return shown == whole > 100

    seen.until(fits)
    seen.page.get_by_role("toolbar").get_by_role("button", name="stand").nth(0).click()
    seen.outcome("done")
    inside.locator("body:not(:has(.back)) .card").first.wait_for()
    seen.until(lambda: inside.locator(".card").all_inner_texts()[-2:] == ["9", "10"])
    assert inside.locator(".back").count() == 0


def test_nothing_that_an_environment_renders_is_carried_out(serve: Serve, visit: Callable[..., Any]) -> None:
    address = serve("forger")
    seen = visit(address)
    seen.expected = ["sandboxed", "Content Security Policy"]  # what the browser says of what it refused
    page = seen.page
    sent: list[str] = []
    page.get_by_role("button", name="Reset").wait_for()
    page.on("requestfinished", lambda request: sent.append(request.url))
    page.on("requestfailed", lambda request: sent.append(request.url) if request.failure != "csp" else None)
    seen.reset()
    assert "allow-scripts" not in page.locator("#rendered iframe").get_attribute("sandbox")
    inside = page.frame_locator("#rendered iframe")
    assert inside.locator("#seen").inner_text() == "here"
    seen.until(lambda: inside.locator("script").count() == 1)  # it is there, and dead
    inside.locator("#seen").click()
    inside.get_by_role("button", name="Go").click()
    inside.locator("#run").click()
    inside.locator("#out").click()
    page.get_by_role("toolbar").get_by_role("button", name="Paint blue").click()
    seen.outcome("Step 1")
    assert page.title() == "Forger"
    assert page.url == f"{address}/web/"
    assert sent == []
    assert any("Content Security Policy" in line for line in seen.console)


def test_hostile_texts_are_shown_as_texts(serve: Serve, visit: Callable[..., Any]) -> None:
    seen = visit(serve("hostile"))
    page = seen.page
    hostile = seen.reset().field("text")
    assert hostile.startswith("<img src=x onerror=")
    assert page.locator("#title").inner_text() == hostile
    assert hostile in page.locator("#description").inner_text()
    page.get_by_role("toolbar").get_by_role("button").click()
    seen.outcome("Step 1")
    form = page.locator("#action-form")
    assert hostile in form.locator(".hint").first.inner_text()
    form.get_by_role("textbox").fill("raise")
    page.get_by_role("button", name="Step", exact=True).click()
    assert hostile in seen.error()
    for card in ("state", "raw", "snippet", "metadata", "readme"):
        page.locator(f"#{card}-card > summary").click()
        page.locator(f"#{card}:has-text('onerror')").wait_for()
    assert page.locator("main img, main script, header img, header script, a[href^=javascript]").count() == 0
    assert page.title() == hostile


def test_a_phone_needs_no_scrolling_sideways(serve: Serve, visit: Callable[..., Any]) -> None:
    for app in ("painter", "hostile", "taker", "blackjack_env", "echo_env"):
        seen = visit(serve(app), viewport={"width": 360, "height": 700})
        page = seen.reset().page
        for card in page.locator("#more > details:not([hidden]) > summary").all():
            card.click()
        widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert widths == [360, 360], app


def test_a_phone_shows_what_came_of_a_call_and_the_log_with_its_units(serve: Serve, visit: Callable[..., Any]) -> None:
    size = {"width": 390, "height": 844}
    for app in ("taker", "painter", "atari_env"):
        seen = visit(serve(app), viewport=size)
        page = seen.reset().page
        place = page.locator("#outcome").bounding_box()
        assert 0 <= place["y"] <= size["height"] * 0.8, app
        assert page.locator("#result-card").bounding_box()["y"] < page.locator("#action-card").bounding_box()["y"]
        cells = "#log td.figure-cell:has-text('s')"
        assert re.fullmatch(r"[\d.]+ (µs|ms|s)", page.locator(cells).inner_text())
        took, log = page.locator(cells).bounding_box(), page.locator("#log-card .scrolls").bounding_box()
        assert took["x"] + took["width"] <= log["x"] + log["width"], app


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(serve: Serve, visit: Callable[..., Any], scheme: str) -> None:
    page = visit(serve("blackjack_env"), color_scheme=scheme).reset(seed="1").page
    page.get_by_role("toolbar").get_by_role("button", name="hit").click()
    page.locator("#outcome .chip").wait_for()
    found = page.evaluate(
        """() => {
          const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
            .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
            .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
          const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
          const ground = (element) => {
            for (let each = element; each; each = each.parentElement) {
              const color = numbers(getComputedStyle(each).backgroundColor);
              if (color.length < 4 || color[3] > 0) return color;
            }
            return [255, 255, 255];
          };
          const poor = [];
          const texts = "h1, h2, p, label, dt, dd span, td, th, button, summary, .name, .value, .chip, .part";
          for (const element of document.querySelectorAll(texts)) {
            if (!element.textContent.trim() || !element.getClientRects().length || element.disabled) continue;
            const [one, other] = [light(numbers(getComputedStyle(element).color)), light(ground(element))];
            const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
            if (contrast < 4.5) poor.push(`${element.outerHTML.slice(0, 60)}: ${contrast.toFixed(2)}`);
          }
          return poor;
        }"""
    )
    assert found == []


def test_everything_has_a_name_and_is_reached_by_keyboard(serve: Serve, visit: Callable[..., Any]) -> None:
    page = visit(serve("taker")).page
    page.locator("#reset-form form").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the forms"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.labels?.[0].textContent") == "seed optional"
    page.keyboard.type("5")
    page.keyboard.press("Enter")
    page.locator("#outcome .part").first.wait_for()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, textarea, button")]
          .filter((each) => !each.labels?.length && !each.textContent.trim() && !each.getAttribute("aria-label"))
          .map((each) => each.outerHTML)"""
    )
    assert nameless == []
    assert '"seed": 5' in page.locator("#fields").inner_text()


def test_the_page_loads_nothing_from_elsewhere_and_says_so(serve: Serve, visit: Callable[..., Any]) -> None:
    address = serve("blackjack_env")
    for path in ("/web/", "/web/page.js", "/web/page.css"):
        answer = httpx.get(f"{address}{path}")
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        again = httpx.get(f"{address}{path}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    asked: list[str] = []
    seen = visit("about:blank")
    seen.page.on("request", lambda request: asked.append(request.url))
    seen.address = address
    seen.load()
    seen.reset()
    assert {url for url in asked if not url.startswith(address)} == set()
