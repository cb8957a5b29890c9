"""The page in a real browser, over real federations; needs Chromium, Playwright and npm's axe-core.

Playwright is in none of the locks that `make test` installs. Without it, pytest ignores these
tests; `make test-browser` installs it and runs them.
"""

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from benchmarks.made_up_run import MadeUpRun
from tests.integration import in_process_federation

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

collect_ignore_glob = [] if importlib.util.find_spec("playwright") else ["test_*.py"]

NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
HOSTILE = "<img/src=x/onerror=document.title='owned'>"
"""A client's name that no server accepts; the records of the made-up run hold it nevertheless."""
PATIENCE = 30_000
"""Milliseconds that the page has to do what a test expects, even on a busy machine."""
Visit = Callable[..., "Page"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests of this folder."""
    item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """The browser of this machine."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    path = next(filter(None, map(shutil.which, NAMES)), None)
    assert path is not None, f"install one of {', '.join(NAMES)}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: "Browser") -> Iterator[Visit]:
    """Opens the page at a place: `visit(url, place, token)`; with a token, it signs in.

    At the end, no page may have sent a request to another host or logged an error to the console.
    `refused` lists the HTTP statuses of expected failures, which browsers log; 0 stands for
    requests without a response.
    """
    faults: list[str] = []
    with ExitStack() as opened:

        def open_page(
            url: str,
            place: str = "",
            token: str = "",
            refused: tuple[int, ...] = (),
            **options: Any,
        ) -> "Page":
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            opened.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(PATIENCE)
            host = urlsplit(url).netloc

            def record(kind: str, text: str) -> None:
                expected = [f"status of {status}" if status else "net::ERR" for status in refused]
                is_expected = any(line in text for line in expected)
                if kind in {"error", "warning"} and not is_expected:
                    faults.append(f"{kind}: {text}")

            page.on("console", lambda message: record(message.type, message.text))
            page.on("pageerror", lambda error: faults.append(str(error)))

            def on_request(request: Any) -> None:
                parts = urlsplit(request.url)
                if parts.scheme not in {"blob", "data"} and parts.netloc != host:
                    faults.append(f"asked {request.url}")

            page.on("request", on_request)
            page.goto(f"{url}/#/{place}")
            if token:
                sign_in(page, token)
            return page

        yield open_page
    assert not faults


def sign_in(page: "Page", token: str) -> None:
    """Signs in with a valid token."""
    page.get_by_label("Operator token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("navigation", name="Views").wait_for()


def go(page: "Page", place: str, heading: str) -> None:
    """Goes to a place, and waits for the heading of its view."""
    from playwright.sync_api import expect

    page.evaluate("place => { location.hash = place }", f"#/{place}")
    expect(page.locator("h1")).to_have_text(heading)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MadeUpRun]:
    """A run of a thousand clients, one of which has a hostile name."""
    names = [HOSTILE, *(f"client-{number:04d}" for number in range(1, 1000))]
    with MadeUpRun(tmp_path_factory.mktemp("large"), names, rounds=30) as run:
        yield run


@pytest.fixture
def host(tmp_path: Path, redis_url: str) -> Iterator[Callable[..., in_process_federation.Hosted]]:
    """Serves federations in this process, `host(experiment, **settings)`, until the test ends."""
    with ExitStack() as started:

        def start(experiment: Any, **settings: Any) -> in_process_federation.Hosted:
            return started.enter_context(
                in_process_federation.host(experiment, tmp_path, redis_url, **settings)
            )

        yield start
