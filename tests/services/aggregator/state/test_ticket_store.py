"""Tickets and pulls, in a real Redis."""

from typing import Any

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
BY = Attribution("ada", "a test", NOW)


async def test_an_evicted_client_gets_no_ticket(live_run: Any) -> None:
    run = live_run.run
    await live_run.join("a", "b")
    assert await run.evictions.evict("a", BY) == ("evicted", "")
    await live_run.open(0, ["a", "b"])
    await run.tickets.grant(live_run.fence, "a", live_run.ticket(0))
    assert list(await run.tickets.outstanding()) == ["b"]


async def test_grant_is_ignored_if_a_ticket_is_outstanding_or_the_update_is_in(
    live_run: Any,
) -> None:
    run = live_run.run
    await live_run.open(0, ["a", "b"])
    await run.tickets.grant(live_run.fence, "a", live_run.ticket(0, "probe"))
    assert (await run.tickets.of("a")).kind == "train"
    await run.uploads.accept(live_run.receipt("b"))
    await run.tickets.grant(live_run.fence, "b", live_run.ticket(0))
    assert await run.tickets.of("b") is None, "its update for this round is in"
    await run.tickets.grant(live_run.fence, "c", live_run.ticket(0))
    assert (await run.tickets.of("c")).kind == "train"


@pytest.mark.parametrize("policy", ["buffered"])
async def test_client_that_has_answered_a_probe_is_not_asked_for_it_again(live_run: Any) -> None:
    """A worker that takes over handles all pulls and probes since the last published round."""
    run, fence = live_run.run, live_run.fence
    await live_run.open(0, [])
    await run.tickets.grant(fence, "a", live_run.ticket(0, "probe"))
    assert (await run.uploads.accept(live_run.receipt("a", kind="probe")))[0] == "accepted"
    await run.tickets.grant(fence, "a", live_run.ticket(0, "probe"))
    assert await run.tickets.of("a") is None
    await run.tickets.grant(fence, "a", live_run.ticket(0))
    assert (await run.tickets.of("a")).kind == "train", "the answer to its probe"
    await live_run.open(1, [])
    await run.tickets.grant(fence, "b", live_run.ticket(1, "probe"))
    assert (await run.tickets.of("b")).kind == "probe"


async def test_standing_has_the_ticket_and_the_state_of_the_run(live_run: Any) -> None:
    await live_run.open(4, ["a"], deadline=NOW + 7.25)
    standing = await live_run.run.tickets.standing("a")
    assert standing.ticket == live_run.ticket(4)
    assert standing.eviction is None
    assert standing.summary == await live_run.run.state.summary()
    assert (standing.summary.round, standing.summary.deadline) == (4, NOW + 7.25)


@pytest.mark.parametrize("policy", ["buffered"])
async def test_repeated_pulls_emit_one_event_until_a_ticket_answers_them(live_run: Any) -> None:
    stores = live_run.stores
    await live_run.join("a")
    await live_run.run.tickets.pull("a")
    assert "pull" not in await live_run.happened(), "there is no round yet"
    await live_run.open(0, [])
    await live_run.run.tickets.pull("a")
    await live_run.run.tickets.pull("a")
    assert (await live_run.happened()).count("pull") == 1
    await live_run.run.tickets.grant(live_run.fence, "a", live_run.ticket(0))
    await live_run.run.tickets.pull("a")
    assert (await live_run.happened()).count("pull") == 1, "it has a ticket"
    await live_run.run.uploads.accept(live_run.receipt("a"))
    await live_run.run.tickets.pull("a")
    assert (await live_run.happened()).count("pull") == 2
    await live_run.open(1, ["a"])
    assert await stores.redis.client.hlen(live_run.run.rounds.keys.pulls) == 0, (
        "the next round's ticket answers it"
    )


async def test_pulls_are_ignored_under_the_synchronous_policy(live_run: Any) -> None:
    await live_run.open(0, [])
    await live_run.run.tickets.pull("a")
    assert "pull" not in await live_run.happened(), "the sync policy has no pulls"


@pytest.mark.parametrize("policy", ["buffered"])
async def test_pulls_of_evicted_clients_are_dropped(live_run: Any) -> None:
    stores = live_run.stores
    await live_run.join("a", "b")
    await live_run.open(0, [])
    await live_run.run.tickets.pull("a")
    await live_run.run.evictions.evict("a", BY)
    await live_run.run.evictions.evict("b", BY)
    await live_run.run.tickets.pull("b")
    assert await stores.redis.client.hlen(live_run.run.rounds.keys.pulls) == 0
