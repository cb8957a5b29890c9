"""Who can sign in, what a viewer sees, and when a session ends."""

from playwright.sync_api import expect

from benchmarks.made_up_run import MadeUpRun
from rampart_fl.shared.runtime.tokens import mint
from tests.browser.conftest import Visit, go, sign_in


def test_wrong_token_is_refused_and_valid_token_stays_in_memory_only(
    visit: Visit, large: MadeUpRun
) -> None:
    page = visit(large.url, "runs", refused=(401,))
    field, button = page.get_by_label("Operator token"), page.get_by_role("button", name="Sign in")
    for wrong in (mint(), "short", "two words that are long enough"):
        field.fill(wrong)
        button.click()
        expect(page.get_by_role("alert")).to_contain_text("Sign-in refused")
    sign_in(page, large.token)
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    kept = page.evaluate(
        "JSON.stringify([location.href, {...localStorage}, {...sessionStorage}, document.cookie])"
    )
    assert large.token not in kept
    page.reload()
    expect(field).to_be_visible()
    expect(page.get_by_role("navigation", name="Views")).to_have_count(0)


def test_viewer_sees_every_view_but_no_action_buttons(visit: Visit, large: MadeUpRun) -> None:
    viewer = large.operator.add_operator("vera", "viewer").token
    run = large.run
    views = (
        (f"runs/{run}", run, ("Pause", "Stop", "Reinstate")),
        (f"runs/{run}/rounds/3", "Round 3", ("Download model global",)),
        ("clients/client-0009", "client-0009", ("Bar everywhere", "Revoke token")),
    )
    for token, allowed in ((viewer, False), (large.token, True)):
        page = visit(large.url, "runs", token)
        expect(page.get_by_label(f"Compare {run}")).to_be_visible()
        expect(page.get_by_text("Submit a run")).to_have_count(int(allowed))
        for place, heading, names in views:
            go(page, place, heading)
            expect(page.locator("main tbody tr").first).to_be_visible()
            for name in names:
                result = page.get_by_role("button", name=name, exact=True)
                if allowed:
                    expect(result.first).to_be_visible()
                else:
                    expect(result).to_have_count(0)


def test_revoked_token_ends_the_session_and_shows_the_reason(
    visit: Visit, large: MadeUpRun
) -> None:
    token = large.operator.add_operator("bob", "operator").token
    page = visit(large.url, "runs", token, refused=(401,))
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    large.operator.revoke_operator("bob")
    expect(page.get_by_role("status")).to_contain_text("the token of bob was revoked")
    expect(page.get_by_label("Operator token")).to_have_value("")
