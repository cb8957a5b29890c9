"""A live run on the page: evictions, every act of an operator, and a lost connection."""

import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from rampart_fl.shared.experiment.toml import to_toml
from tests.browser.conftest import Visit, go
from tests.integration.in_process_federation import (
    FEDCAP,
    Disk,
    Hold,
    Hosted,
    collecting,
    experiment,
    until,
)

NAMES = ["ada", "bob", "cleo"]
HOSTILE = ["mallory", "oscar"]
Host = Callable[..., Hosted]


def start(host: Host, hold: Hold, rounds: int = 4, **eviction: Any) -> Hosted:
    """A running federation of five clients; the norms of two clients' updates are far too large."""
    detectors = [{"name": "norm_bound", "threshold": 5}]
    server = {**FEDCAP, "detectors": detectors, "eviction": eviction}
    hosted = host(experiment(5, rounds, server=server))
    hosted.scripted(NAMES, hold=hold)
    hosted.scripted(HOSTILE, scale=10.0)
    return hosted


def token(hosted: Hosted) -> str:
    """The owner's token."""
    return hosted.settings.operator_token.get_secret_value()


def act(page: Page, button: Any, reason: str, outcome: str) -> None:
    """Clicks the button of an act, checks the outcome that the dialog states, and confirms."""
    button.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(outcome)
    confirm = dialog.locator("button[type=submit]")
    confirm.click()
    expect(dialog).to_be_visible()  # A reason is needed.
    dialog.get_by_label("Reason").fill(reason)
    confirm.click()
    expect(dialog).to_have_count(0)


def point(page: Page, name: str, keys: tuple[str, ...], text: str) -> None:
    """Moves through a matrix with the keyboard until the readout of a cell contains a text.

    Rows may arrive and be sorted while the keys are pressed.
    """
    page.get_by_role("application", name=name).focus()

    def said() -> bool:
        for key in keys:
            page.keyboard.press(key)
        return text in page.locator(".readout").inner_text()

    until(said)


def row(page: Page, client: str) -> Any:
    """A client's row in the table of a run's clients."""
    box = page.get_by_role("region", name="Clients of the run")
    return box.get_by_role("row").filter(has=page.get_by_role("link", name=client, exact=True))


def test_run_page_shows_evictions_and_rounds_live(host: Host, visit: Visit) -> None:
    hold = Hold(0)
    hosted = start(host, hold, rounds=2)
    page = visit(hosted.url, "runs", token(hosted))
    page.get_by_role("link", name=hosted.run.id).click()
    expect(page.locator(".fact", has_text="Posted")).to_contain_text("2 of 5")
    events = page.get_by_role("list", name="Events, newest first")
    expect(events).not_to_contain_text("evicted")
    hold.round = 1
    for name in HOSTILE:
        expect(events).to_contain_text(name)
        expect(row(page, name)).to_contain_text("evicted")
    expect(page.locator(".fact", has_text="Barred")).to_contain_text("2 evicted")
    point(page, f"Verdicts of {hosted.run.id}", ("Home",), "round 0: evicted, score")
    page.keyboard.press("Enter")
    details = page.get_by_role("complementary")
    expect(details).to_contain_text("norm_bound")
    expect(details).to_contain_text("exceeds 5")
    expect(details.get_by_role("button", name="Reinstate")).to_be_visible()
    hold.on = False
    expect(page.locator(".heading .state")).to_have_text("finished")
    expect(events).to_contain_text("published")
    page.get_by_role("link", name="Newest: round 1", exact=True).click()
    expect(page.get_by_role("heading", name="Lineage")).to_be_visible()
    table = page.get_by_role("region", name="Verdicts of the round")
    expect(table.get_by_role("row")).to_have_count(4)
    point(page, "Customization weights", ("Home",), "takes from")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download model global").click()
    assert saved.value.path().read_bytes() == hosted.model("global")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download record").click()
    assert b'"round":1' in saved.value.path().read_bytes()


def test_late_update_appears_in_the_matrix_on_arrival(host: Host, visit: Visit) -> None:
    hold = Hold(0)
    hosted = host(experiment(3, server=FEDCAP, phases=collecting(least=2)))
    hosted.scripted(NAMES[:2])
    hosted.scripted(NAMES[2:], hold=hold)
    hosted.received(*NAMES[:2])
    hosted.expire()
    hosted.wait("collecting", 1)
    page = visit(hosted.url, f"runs/{hosted.run.id}", token(hosted))
    matrix = f"Verdicts of {hosted.run.id}"
    point(page, matrix, ("Home", "ArrowDown", "ArrowDown"), "cleo, round 0: absent")
    hold.on = False
    expect(page.get_by_role("list", name="Events, newest first")).to_contain_text("late")
    point(page, matrix, ("ArrowUp", "ArrowDown"), "cleo, round 0: late")


def test_every_operator_act_states_its_effect_and_is_audited_with_its_reason(
    host: Host, visit: Visit
) -> None:
    hold = Hold(1)
    hosted = start(host, hold, by="operator")
    hosted.wait("collecting", 1)
    page = visit(hosted.url, f"runs/{hosted.run.id}", token(hosted), refused=(422,))
    trail = page.get_by_role("list", name="Actions on this run, newest first")
    proposals = page.get_by_role("region", name="2 proposals to evict")

    def proposal(client: str, verb: str) -> Any:
        line = page.locator(".proposal").filter(has_text=client)
        return line.get_by_role("button", name=verb)

    expect(proposals).to_contain_text("exceeds 5")
    expect(proposals).to_contain_text(re.compile(r"norm_bound, score \d+, limit 5, round 0"))
    barred = page.locator(".fact", has_text="Barred")
    expect(barred).to_contain_text("0 quarantined, 2 proposed")
    act(page, proposal("mallory", "Confirm"), "I looked", "mallory is barred from run")
    expect(row(page, "mallory")).to_contain_text("evicted")
    act(page, proposal("oscar", "Dismiss"), "its sensor", "oscar is readmitted")
    expect(page.locator(".proposal")).to_have_count(0)
    button = row(page, "cleo").get_by_role("button")
    act(page, button, "<b>a test</b>", "Only “Reinstate” undoes this")
    expect(row(page, "cleo")).to_contain_text("evicted")
    expect(trail).to_contain_text("<b>a test</b>")
    act(page, row(page, "cleo").get_by_role("button"), "came back", "first sends a probe")
    expect(row(page, "cleo")).not_to_contain_text("evicted")
    page.get_by_label("Mode of evictions").select_option("reject")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("calmer")
    dialog.get_by_role("button", name="Set mode").click()
    expect(page.get_by_label("Mode of evictions")).to_have_value("reject")
    for verb, state in (("Pause", "paused"), ("Resume", "running"), ("Stop", "stopping")):
        hold.on = verb != "Stop"
        act(page, page.get_by_role("button", name=verb, exact=True), f"{verb} it", "round")
        expect(page.locator(".heading .state")).to_have_text(
            state if verb != "Stop" else "finished"
        )
        expect(trail).to_contain_text(f"{verb} it")

    page.evaluate("location.hash = '#/clients/bob'")
    for verb, after in (("Bar everywhere", "Readmit"), ("Readmit", "Bar everywhere")):
        act(page, page.get_by_role("button", name=verb), f"{verb} bob", "bob")
        expect(page.get_by_role("button", name=after)).to_be_visible()
    act(page, page.get_by_role("button", name="Revoke token"), "a leak", "is refused")
    expect(page.locator(".fact", has_text="Token")).to_contain_text("revoked")

    page.evaluate("location.hash = '#/runs'")
    page.get_by_text("Submit a run").click()
    page.get_by_label("Start from the experiment of").select_option(hosted.run.id)
    text = page.get_by_label("Experiment, as TOML or JSON")
    expect(text).to_have_value(re.compile('"name": "scripted"'))
    text.fill("rounds = ")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("status")).to_contain_text("not a TOML file")
    text.fill(to_toml(hosted.run.experiment().tables()))
    page.get_by_label("Name of the run").fill("again")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("status")).to_contain_text("The experiment can run:")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("Submitted as again-")
    again = page.get_by_role("row").filter(has_text="again-")
    expect(again).to_be_visible()
    page.get_by_label(f"Compare {hosted.run.id}").check()
    expect(page.get_by_role("region", name="Comparison")).to_contain_text(hosted.run.id)
    done = [(entry.act, entry.reason) for entry in hosted.operator.audit()]
    for entry in (
        ("confirm", "I looked"),
        ("dismiss", "its sensor"),
        ("evict", "<b>a test</b>"),
        ("reinstate", "came back"),
        ("mode", "calmer"),
        ("pause", "Pause it"),
        ("resume", "Resume it"),
        ("stop", "Stop it"),
        ("evict-everywhere", "Bar everywhere bob"),
        ("reinstate-everywhere", "Readmit bob"),
        ("revoke-token", "a leak"),
    ):
        assert entry in done


def test_run_page_reports_a_lost_connection_and_recovers_after_a_restart(
    host: Host, visit: Visit
) -> None:
    hold = Hold(0)
    hosted = start(host, hold, rounds=2)
    page = visit(hosted.url, f"runs/{hosted.run.id}", token(hosted), refused=(0, 503))
    expect(page.locator(".fact", has_text="Posted")).to_contain_text("2 of 5")
    lost = page.get_by_text("Connection lost.")
    expect(lost).to_have_count(0)
    hosted.stop()
    expect(lost).to_be_visible()
    hosted.resume()
    expect(lost).to_have_count(0)
    hold.round = 1
    expect(page.locator(".fact", has_text="Barred")).to_contain_text("2 evicted")
    for name in HOSTILE:
        listed = page.get_by_role("list", name="Events, newest first").get_by_role("listitem")
        evicted = listed.filter(has_text="evicted").filter(has_text=name)
        expect(evicted).to_have_count(1)
    hold.on = False
    hosted.wait()


def test_run_page_says_that_a_run_waits_for_clients_until_it_starts(
    host: Host, visit: Visit
) -> None:
    hosted = host(experiment(3, server=FEDCAP))
    page = visit(hosted.url, f"runs/{hosted.run.id}", token(hosted))
    heading = page.locator(".heading")
    expect(heading).to_contain_text("waits for clients: 0 of 3 have accepted")
    expect(page.get_by_text("No round has ended yet.")).to_have_count(3)
    expect(page.locator(".fact", has_text="Round")).to_contain_text("0 of 2 ended")
    expect(page.get_by_role("link", name="Newest")).to_have_count(0)
    hosted.scripted(NAMES, hold=Hold(1))
    expect(page.locator(".fact", has_text="Phase")).to_contain_text("collecting")
    expect(heading).not_to_contain_text("waits for")
    expect(page.get_by_role("link", name="Newest: round 0")).to_be_visible()
    expect(page.get_by_text("No round has ended yet.")).to_have_count(0)
    expect(page.get_by_text("No client has reported an accuracy.")).to_be_visible()
    expect(page.get_by_role("img", name="Median norm")).to_be_visible()


def test_run_page_says_that_a_run_waits_for_disk_space_until_there_is_room(
    host: Host, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    monkeypatch.setattr(shutil, "disk_usage", disk.usage)
    hosted, hold = host(experiment(3, server=FEDCAP)), Hold(0)
    hosted.scripted(NAMES, hold=hold)
    hosted.wait("collecting", 0)
    page = visit(hosted.url, f"runs/{hosted.run.id}", token(hosted))
    heading = page.locator(".heading")
    expect(heading).not_to_contain_text("waits for")
    disk.free, hold.on = 0, False
    expect(heading).to_contain_text("waits for disk: a round of 3 clients needs")
    disk.free = 2**40
    expect(heading).not_to_contain_text("waits for")


def test_run_page_opened_during_an_outage_loads_after_it(host: Host, visit: Visit) -> None:
    hold = Hold(1)
    hosted = start(host, hold)
    hosted.wait("collecting", 1)
    page = visit(hosted.url, "clients/mallory", token(hosted), refused=(0, 404, 503))
    standing = page.get_by_role("region", name="Runs of the client")
    expect(standing).to_contain_text("evicted 1")
    hosted.stop()
    go(page, f"runs/{hosted.run.id}", hosted.run.id)
    expect(page.get_by_role("alert")).to_contain_text("does not answer. The page keeps trying.")
    expect(page.get_by_role("heading")).to_have_count(1)  # No empty list says that nobody acted.
    hosted.resume()
    expect(page.locator(".fact", has_text="Barred")).to_contain_text("2 evicted")
    point(page, f"Verdicts of {hosted.run.id}", ("Home",), "round 0: evicted, score")
    expect(page.get_by_role("alert")).to_have_count(0)
    go(page, f"runs/{hosted.run.id}/rounds/0", "Round 0")
    table = page.get_by_role("region", name="Verdicts of the round")
    expect(table.get_by_role("row").nth(1)).to_contain_text("evicted")  # The first is the header.
    go(page, "clients/mallory", "mallory")
    barred = standing.get_by_role("cell", name="evicted", exact=True)
    expect(barred).to_have_count(1)
    hosted.run.decide("mallory", "reinstate", "its sensor")
    expect(barred).to_have_count(0)
    go(page, "runs/none-1", "none-1")
    expect(page.get_by_role("alert")).to_have_text("there is no run none-1")
