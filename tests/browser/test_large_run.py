"""A run of a thousand clients, with a hostile name and hostile reasons."""

import re

from playwright.sync_api import Page, expect

from benchmarks.made_up_run import MadeUpRun
from tests.browser.conftest import HOSTILE, Visit, go
from tests.integration.in_process_federation import until


def cells(page: Page) -> int:
    """Number of colours in the verdict matrix, besides shades of text."""
    return int(
        page.evaluate(
            """() => {
          const canvas = document.querySelector(".grid-canvas");
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const seen = new Map();
          for (let i = 0; i < data.length; i += 4) {
            const colour = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
            seen.set(colour, (seen.get(colour) || 0) + 1);
          }
          return [...seen.values()].filter((count) => count > 50).length;
        }"""
        )
    )


def test_matrix_of_a_thousand_clients_is_drawn_and_navigable_by_keyboard(
    visit: Visit, large: MadeUpRun
) -> None:
    page = visit(large.url, f"runs/{large.run}", large.token)
    matrix = page.get_by_role("application", name=f"Verdicts of {large.run}")
    readout = page.locator(".verdicts .readout")
    expect(page.locator(".fact", has_text="Barred")).to_contain_text("evicted")
    tall = re.compile(r"^9\d{3}(\.\d+)?px$")
    expect(page.locator(".verdicts .grid-space")).to_have_css("height", tall)
    until(lambda: cells(page) >= 4)
    page.keyboard.press("Tab")
    matrix.focus()
    page.keyboard.press("Home")
    expect(readout).to_contain_text("round 0: ")
    first = readout.inner_text()
    page.keyboard.press("ArrowRight")
    expect(readout).to_contain_text("round 1: ")
    for _ in range(40):
        page.keyboard.press("PageDown")
    page.keyboard.press("End")
    expect(readout).to_contain_text(f"round {large.round - 1}: ")
    assert readout.inner_text().split(",")[0] != first.split(",")[0]
    page.wait_for_function("document.querySelector('.grid').scrollTop > 8000")
    before = large.round
    large.publish()

    def shown() -> bool:
        page.keyboard.press("End")
        return f"round {before}: " in readout.inner_text()

    until(shown)
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary")).to_contain_text(f"round {before}")
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary")).to_have_count(0)


def test_round_view_links_to_the_next_round_up_to_the_newest(
    visit: Visit, large: MadeUpRun
) -> None:
    newest = large.round - 1
    page = visit(large.url, f"runs/{large.run}/rounds/{newest - 1}", large.token)
    following = page.get_by_role("link", name="Next")
    following.click()
    expect(page.get_by_role("heading", name=f"Round {newest}", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Verdicts of the round")).to_be_visible()
    expect(following).to_have_count(0)


def test_hostile_names_and_reasons_are_rendered_as_text(visit: Visit, large: MadeUpRun) -> None:
    reason = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
    large.operator.run(large.run).decide("client-0002", "evict", reason)
    page = visit(large.url, f"runs/{large.run}", large.token, refused=(404, 422))
    expect(page.get_by_role("region", name="Clients of the run")).to_contain_text(reason)
    trail = page.get_by_role("list", name="Actions on this run, newest first")
    expect(trail).to_contain_text(reason)
    go(page, f"runs/{large.run}/rounds/0", "Round 0")
    table = page.get_by_role("region", name="Verdicts of the round")
    page.get_by_label("Filter verdicts").fill("<img")
    expect(table).to_contain_text(HOSTILE)
    table.get_by_role("link", name=HOSTILE).click()
    expect(page.locator("h1")).to_have_text(HOSTILE)
    expect(page).to_have_title(f"{HOSTILE} – Rampart")  # An effect sets it after the paint.
    expect(page.locator("img")).to_have_count(1)  # The icon.
    expect(page.locator("script")).to_have_count(1)


def test_charts_are_drawn_once_their_library_can_be_loaded(visit: Visit, large: MadeUpRun) -> None:
    page = visit(large.url, "", large.token, refused=(0,))
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    library = "**/vendor/uplot.js*"
    page.route(library, lambda route: route.abort())
    with page.expect_event("requestfailed"):
        go(page, f"runs/{large.run}", large.run)
    expect(page.locator(".u-wrap")).to_have_count(0)
    page.unroute(library)
    expect(page.locator(".u-wrap").first).to_be_visible()
