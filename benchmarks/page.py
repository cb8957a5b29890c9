"""Times the operators' page with a thousand clients and a thousand rounds, in a headless browser.

    python benchmarks/page.py [--clients 1000] [--rounds 1000] [--updates 20]

`make test-browser` installs Chromium and Playwright, which the benchmark needs. The benchmark
prints a table: the time to the first content, to the run's state and to the newest verdicts, and
the main thread's processor time while one more round opens and ends. An update of the page is one
task of the main thread, so it delays at most one frame.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.made_up_run import MadeUpRun
from rampart_fl.shared.runtime import cpus

FLAGS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update")
REPEATS = 5
SETTLED = 2.0
"""Seconds after the end of a round within which the page has drawn the round's update."""
CATEGORIES, TASK = ["toplevel", "__metadata"], "ThreadControllerImpl::RunTask"


def tasks(trace: Path) -> list[float]:
    """Milliseconds of processor time of each task of the page's main thread, longest first."""
    events = json.loads(trace.read_text())["traceEvents"]
    threads = defaultdict[tuple[int, int], list[float]](list)
    for event in events:
        if event["ph"] == "X" and "tdur" in event and event["name"] == TASK:
            threads[event["pid"], event["tid"]].append(event["tdur"] / 1000)
    mains = (
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    )
    return sorted(max((threads[main] for main in mains), key=sum), reverse=True)


def first_content(page: Page, url: str) -> float:
    """Milliseconds from the request of the page to its first content."""
    page.goto("about:blank")
    page.goto(url)
    page.get_by_label("Operator token").wait_for()
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    while not (milliseconds := float(page.evaluate(paint))):
        page.wait_for_timeout(10)
    return milliseconds


def time_to_open(page: Page, run: MadeUpRun) -> tuple[float, float]:
    """Milliseconds from the sign-in to the run's state, and to its newest verdicts."""
    page.goto(f"{run.url}/#/runs/{run.run}")
    page.get_by_label("Operator token").fill(run.token)
    started = time.perf_counter()
    page.get_by_role("button", name="Sign in").click()
    page.locator(".fact").first.wait_for()
    state = time.perf_counter() - started
    tall = f"document.querySelector('.grid-space')?.offsetHeight > {5 * len(run.clients)}"
    while not page.evaluate(tall):
        page.wait_for_timeout(5)
    return 1000 * state, 1000 * (time.perf_counter() - started)


def tasks_after(page: Page, browser: Browser, trace: Path, act: Callable[[], None]) -> list[float]:
    """The tasks of the page's main thread in the `SETTLED` seconds after a call of `act`."""
    browser.start_tracing(page=page, path=trace, categories=CATEGORIES)
    act()
    page.wait_for_timeout(1000 * SETTLED)
    browser.stop_tracing()
    return tasks(trace)


def measure(clients: int, rounds: int, count: int) -> dict[str, str]:
    """The table's rows."""
    names = [f"client-{number:04d}" for number in range(clients)]
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell"))))
    with (
        tempfile.TemporaryDirectory() as folder,
        MadeUpRun(Path(folder), names, rounds, rounds + count + 1) as run,
        sync_playwright() as playwright,
    ):
        chromium = playwright.chromium.launch(executable_path=browser, args=list(FLAGS))
        page = chromium.new_page(viewport={"width": 1360, "height": 900})
        contents = [first_content(page, run.url) for _ in range(REPEATS)]
        state, verdicts = time_to_open(page, run)
        until_loaded(page, run)
        trace = Path(folder) / "trace.json"
        idle = [sum(tasks_after(page, chromium, trace, lambda: None)) for _ in range(REPEATS)]
        rounds_ = [tasks_after(page, chromium, trace, run.publish) for _ in range(count)]
        chromium.close()
    longest = sorted(times[0] for times in rounds_)
    middle = statistics.median(longest)
    whole = statistics.median(sum(times) for times in rounds_) - statistics.median(idle)
    return {
        "first content (median of 5)": f"{statistics.median(contents):.0f} ms",
        "from sign-in to the run's state": f"{state:.0f} ms",
        "from sign-in to the newest 100 rounds of verdicts": f"{verdicts:.0f} ms",
        "longest update of the main thread in a round, median": f"{middle:.1f} ms",
        "longest update of the main thread in a round, maximum": f"{longest[-1]:.1f} ms",
        "all updates of the main thread in a round, median": f"{whole:.1f} ms",
    }


def until_loaded(page: Page, run: MadeUpRun) -> None:
    """Waits until all rounds are loaded, that is, until the matrix shows the first round."""
    page.locator(".grid-canvas").focus()
    page.keyboard.press("Home")
    while "round 0:" not in page.locator(".verdicts .readout").inner_text():
        page.wait_for_timeout(500)
        page.keyboard.press("Home")
    page.keyboard.press("End")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=20)
    given = parser.parse_args()
    rows = measure(given.clients, given.rounds, given.updates)
    print(f"{given.clients} clients, {given.rounds} rounds, {cpus.threads()} processors\n")
    print("| | measured |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
