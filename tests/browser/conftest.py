"""The debug page in a real browser: Chromium, servers of their own processes, and nothing on its console."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.providers import ProcessProvider

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / "environments"
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_FLAGS = ("--disable-gpu", "--disable-dev-shm-usage")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; without one the tests are left out, or fail with OPENENV_TRL_REQUIRE_BROWSER=1.

    One for each file: while Playwright runs, its event loop stands in the way of other files' tests.
    """
    found = os.environ.get("OPENENV_TRL_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        text = "There is no Chromium. Install one: on Debian `apt-get install chromium`; OPENENV_TRL_CHROMIUM names it."
        if os.environ.get("OPENENV_TRL_REQUIRE_BROWSER") == "1":
            pytest.fail(text)
        pytest.skip(text)
    from playwright.sync_api import sync_playwright

    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=flags)
        yield running
        running.close()


_NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"  # Chromium gives up requests when an interface comes or goes


class Visit:
    """A page of its own browser context, as another person would have it."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.address = address
        self.expected: list[str] = []
        self.console: list[str] = []
        page.set_default_timeout(30_000)
        page.on("console", lambda message: self.console.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.console.append(f"exception: {error}"))

    def load(self) -> None:
        """Load the page; again where the machine's network changed meanwhile, as it does with each container."""
        for _ in range(10):
            self.console.clear()
            try:
                self.page.goto(self.address)
            except Exception as error:
                if _NETWORK_CHANGED not in str(error):
                    raise
                continue
            if not any(_NETWORK_CHANGED in line for line in self.console):
                return
        pytest.fail("the machine's network changed with each of ten loads")

    def unexpected(self) -> list[str]:
        """What is on the console, and was not expected there."""
        expected = [*self.expected, _NETWORK_CHANGED]
        return [line for line in self.console if not any(re.search(each, line) for each in expected)]

    def reset(self, **arguments: str) -> Visit:
        """Press Reset, and wait for the first observation."""
        for name, value in arguments.items():
            self.page.locator("#reset-form").get_by_label(name).fill(value)
        self.page.get_by_role("button", name="Reset").click()
        self.outcome("Reset")
        return self

    def outcome(self, text: str) -> None:
        """Wait until that is said of the last call."""
        self.page.locator("#outcome").get_by_text(text, exact=True).wait_for()

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what the page does by and by, and Playwright does not wait for: frames and pictures that load."""
        ends = time.monotonic() + 60
        while not holds() and time.monotonic() < ends:
            self.page.wait_for_timeout(50)
        assert holds()

    def field(self, name: str) -> str:
        """What stands beside a field's name in the observation."""
        return self.page.locator(f"#fields dt:text-is('{name}') + dd").inner_text()

    def error(self) -> str:
        """What the page says that went wrong."""
        self.page.locator("#error").wait_for()
        return self.page.locator("#error").inner_text()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Open a page as another person; its console must stay empty."""
    visits: list[Visit] = []
    with ExitStack() as stack:

        def open_page(address: str, **options: Any) -> Visit:
            context = browser.new_context(**options)
            stack.callback(context.close)
            visits.append(Visit(context.new_page(), address))
            visits[-1].load()
            return visits[-1]

        yield open_page
    assert [each.unexpected() for each in visits] == [[] for _ in visits]


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., str]]:
    """Serve an application with a debug page in a process; the same one again where it was asked before."""
    running: dict[str, str] = {}
    with ExitStack() as stack:

        def start(target: str, **variables: str) -> str:
            key = f"{target} {sorted(variables.items())}"
            if key not in running:
                folder = ENVIRONMENTS / target
                environment = str(folder) if folder.is_dir() else f"shown_environments:{target}"
                env_vars = {"ENABLE_WEB_INTERFACE": "true", **variables}
                provider = ProcessProvider(environment, cwd=HERE, env_vars=env_vars)
                running[key] = stack.enter_context(provider).base_urls[0]
            return running[key]

        yield start
