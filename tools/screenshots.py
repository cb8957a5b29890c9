"""Takes the documentation's screenshots of the operators' page, from a run of the demo.

    make screenshots

Writes docs/images/page-*.png. Needs Chromium and Playwright, as `make test-browser` does.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from rampart_fl.services.console.launcher.local_federation import LocalFederation
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.validation import validate

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs/images"
ROUNDS = 24
WIDTH = 1280
BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")


def main() -> None:
    """Runs the demo, and takes the screenshots when the run has ended."""
    tables = {**Experiment.load("digits-sign-flip").tables(), "rounds": ROUNDS}
    experiment = validate(Experiment.from_tables(tables))
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalFederation(experiment, Path(folder)) as federation,
    ):
        federation.start_clients()
        for event in federation.run.events("0-0"):
            if event["type"] == "published":
                sys.stderr.write(f"round {event['round']} of {ROUNDS}\n")
            if event["type"] == "ended":
                break
        shoot(federation.url, federation.token, federation.run.id)


def shoot(url: str, token: str, run: str) -> None:
    """Takes the screenshots of one run."""
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, place, scheme, size in (
            ("run", f"runs/{run}", "light", (WIDTH, 900)),
            ("dark", f"runs/{run}", "dark", (WIDTH, 900)),
            ("round", f"runs/{run}/rounds/{ROUNDS - 1}", "light", (WIDTH, 1500)),
            ("phone", f"runs/{run}", "light", (390, 844)),
        ):
            options: dict[str, Any] = {"color_scheme": scheme}
            options["viewport"] = {"width": size[0], "height": size[1]}
            page = chromium.new_page(**options)
            page.goto(f"{url}/#/{place}")
            page.get_by_label("Operator token").fill(token)
            page.get_by_role("button", name="Sign in").click()
            page.locator(".grid-canvas").wait_for()
            page.wait_for_timeout(2000)
            if name in {"run", "dark"}:
                open_eviction(page)
            page.screenshot(path=IMAGES / f"page-{name}.png")
            page.close()
        chromium.close()


def open_eviction(page: Any) -> None:
    """Opens the details of the eviction in the first row."""
    page.locator(".grid-canvas").focus()
    page.keyboard.press("Home")
    readout = page.locator(".verdicts .readout")
    for _ in range(ROUNDS):
        if ": evicted" in readout.inner_text():
            break
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator(".details canvas").first.wait_for()
    page.wait_for_timeout(1000)
    page.locator("h1").click()


if __name__ == "__main__":
    main()
