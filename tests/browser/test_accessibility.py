"""No view has a serious fault in either colour scheme, and every view fits a narrow screen."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from benchmarks.made_up_run import MadeUpRun
from tests.browser.conftest import Visit, go

AXE = Path(__file__).parents[2] / "tools/page/node_modules/axe-core/axe.min.js"
PLACES = {
    "runs": "Runs",
    "runs/{run}": "{run}",
    "runs/{run}/rounds/12": "Round 12",
    "clients": "Clients",
    "clients/client-0009": "client-0009",
    "audit": "Audit log",
}
"""The views, each with its heading."""


def show(page: Page, run: str, place: str) -> None:
    """Goes to a view, and waits until it has a row."""
    go(page, place.format(run=run), PLACES[place].format(run=run))
    expect(page.locator("tbody tr, .log li").first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_or_critical_violation_in_any_view(
    visit: Visit, large: MadeUpRun, scheme: str
) -> None:
    page = visit(large.url, "", color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    page.evaluate(AXE.read_text())
    scores = [page.evaluate(RUN)]
    page.get_by_label("Operator token").fill(large.token)
    page.get_by_role("button", name="Sign in").click()
    for place in PLACES:
        show(page, large.run, place)
        scores.append(page.evaluate(RUN))
    show(page, large.run, "runs/{run}")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    scores.append(page.evaluate(RUN))
    assert not [fault for faults in scores for fault in faults]


RUN = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 200))}`);
}"""


def test_no_view_is_wider_than_a_narrow_screen(visit: Visit, large: MadeUpRun) -> None:
    page = visit(large.url, "", viewport={"width": 360, "height": 740})
    wide = {"sign-in": page.evaluate("document.documentElement.scrollWidth")}
    page.get_by_label("Operator token").fill(large.token)
    page.get_by_role("button", name="Sign in").click()
    for place in PLACES:
        show(page, large.run, place)
        wide[place] = page.evaluate("document.documentElement.scrollWidth")
        wide[f"{place} tables"] = page.evaluate(TABLES)
    assert {place: width for place, width in wide.items() if width > 360} == {}


TABLES = """() => Math.max(
  0, ...[...document.querySelectorAll(".table-box")].map((box) => box.scrollWidth)
)"""


def test_list_of_runs_on_a_phone_shows_accuracy_and_evictions(
    visit: Visit, large: MadeUpRun
) -> None:
    page = visit(large.url, "runs", large.token, viewport={"width": 360, "height": 740})
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=large.run))
    for part in (".state", "[data-label=Accuracy]", "[data-label=Evicted]"):
        expect(row.locator(part)).to_be_in_viewport(ratio=1)


def test_keyboard_skips_to_the_content_and_every_control_shows_focus(
    visit: Visit, large: MadeUpRun
) -> None:
    page = visit(large.url, "runs", large.token)
    expect(page.get_by_label(f"Compare {large.run}")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    seen = 0
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement !== document.body"):
        width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert width == "2px", page.evaluate("document.activeElement.outerHTML")
        seen += 1
        page.keyboard.press("Tab")
    assert seen >= 3
