"""Evictions, quarantines and proposals, in a real Redis."""

import json
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.worker.liveness import Liveness
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.protocol.clients import BarReason, ConfirmedFinding
from tests.services.aggregator.conftest import FINDING, held

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
BY = Attribution("ada", "a test", NOW)


def liveness_of(live_run: Any) -> Liveness:
    """The liveness of a run's clients, for a worker that has just started."""
    run = live_run.run
    return Liveness(live_run.stores.clients, run.members, run.evictions, 60, lambda: NOW)


@pytest.fixture
async def away(live_run: Any) -> Any:
    """A federation whose round 0 quarantined `a` and proposed to evict `b`, until round 3."""
    await live_run.join("a", "b", "c")
    await live_run.open(0, ["a", "b", "c"])
    await live_run.quarantine(0, a=held(3), b=held(3, "proposal"))
    return live_run


async def test_operator_can_evict_and_reinstate_a_client(live_run: Any) -> None:
    run = live_run.run
    await live_run.join("a")
    await live_run.open(0, ["a"])
    assert await run.evictions.evict("a", BY) == ("evicted", "")
    assert await run.evictions.evict("a", BY) == ("already", "")
    assert await run.evictions.evict("nobody", BY) == ("unknown", "")
    assert await run.evictions.evicted() == {
        "a": BarReason(reason="a test", detector="operator", at=NOW)
    }
    standing = await run.tickets.standing("a")
    assert (standing.ticket, standing.eviction.reason) == (None, "a test")
    assert await run.evictions.reinstate("a", BY) == ("reinstated", "")
    assert await run.evictions.reinstate("a", BY) == ("already", "")
    assert await run.evictions.reinstate("nobody", BY) == ("unknown", "")
    assert await run.evictions.evicted() == {}
    events = await run.events.read("0-0", 0.001)
    assert [e.type for e in events[-2:]] == ["evicted", "reinstated"]
    assert [e.fields["reason"] for e in events[-2:]] == ["a test", "a test"]


async def test_only_members_count_as_barred_clients_of_a_run(live_run: Any) -> None:
    """Otherwise, evictions of clients that take no part would use up the run's bound."""
    await live_run.join("a", "b", "c")
    await live_run.register("x", "y")
    for client in ("a", "x", "y"):
        assert (await live_run.run.evictions.evict(client, BY)).answer == "evicted"
    barred = await live_run.run.evictions.barred()
    assert list(barred.evicted) == ["a", "x", "y"]
    assert barred.standing == Standing(3, 3, frozenset("a"), frozenset())


async def test_a_client_barred_everywhere_takes_no_part_even_if_the_run_reinstates_it(
    live_run: Any,
) -> None:
    await live_run.join("a", "b")
    await live_run.open(0, ["a", "b"])
    assert await live_run.stores.clients.bar("a", BY) == "barred"
    await live_run.run.evictions.evict("a", BY)
    await live_run.run.evictions.reinstate("a", BY)
    barred = await live_run.run.evictions.barred()
    assert (barred.evicted, barred.out, barred.away(0)) == ({}, {"a"}, {"a"})
    assert barred.standing.evicted == {"a"}
    assert await liveness_of(live_run).candidates(1) == ["b"]
    await live_run.stores.clients.readmit("a", BY)
    assert await liveness_of(live_run).candidates(1) == ["a", "b"]


async def test_a_client_evicted_before_it_got_a_slot_is_offered_the_run_again(
    live_run: Any,
) -> None:
    run = live_run.run
    await live_run.register("late")
    await live_run.join("member")
    # Slots are assigned, so only an eviction before the assignment leaves an answer without a slot.
    answer = json.dumps({"accept": True, "at": NOW, "reason": "", "slot": None})
    await live_run.stores.redis.client.hset(run.keys.answers, "late", answer)
    assert (await run.tickets.standing("late")).answered
    for client in ("late", "member"):
        await run.evictions.evict(client, BY)
        await run.evictions.reinstate(client, BY)
    assert not (await run.tickets.standing("late")).answered
    assert (await run.tickets.standing("member")).answered


@pytest.mark.parametrize("policy", ["buffered"])
async def test_published_quarantines_and_proposals_are_stored_with_evidence(away: Any) -> None:
    barred = await away.run.evictions.barred()
    assert barred.quarantined == {"a": held(3), "b": held(3, "proposal")}
    assert list(barred.proposals) == ["b"]
    assert (barred.away(2), barred.away(3)) == ({"a", "b"}, set())
    assert barred.standing == Standing(3, 3, frozenset(), frozenset({"a", "b"}))
    events = {(event["type"], event.get("client")) for event in await away.last_events(3)}
    assert events == {("quarantined", "a"), ("proposed", "b"), ("published", None)}
    assert list(await away.run.tickets.outstanding()) == ["c"]


async def test_publishing_a_round_again_does_not_bar_a_reinstated_client(away: Any) -> None:
    assert await away.run.evictions.reinstate("a", BY) == ("reinstated", "")
    events = await away.happened()
    await away.quarantine(0, a=held(3))
    assert await away.happened() == events
    assert list((await away.run.evictions.barred()).quarantined) == ["b"]


async def test_quarantined_clients_get_no_ticket_and_are_not_selected(away: Any) -> None:
    liveness = liveness_of(away)
    assert await liveness.candidates(1) == ["c"]
    assert await liveness.candidates(3) == ["a", "b", "c"]
    await away.open(1, ["a", "c"])
    await away.run.tickets.grant(away.fence, "b", away.ticket(1))
    assert list(await away.run.tickets.outstanding()) == ["c"]
    assert (await away.run.uploads.accept(away.receipt("a", 1)))[0] == "no-ticket"


async def test_all_quarantined_requires_that_only_quarantined_clients_are_left(away: Any) -> None:
    liveness = liveness_of(away)
    assert not await liveness.all_quarantined(1)
    await away.run.evictions.evict("c", BY)
    assert await liveness.all_quarantined(1)
    assert not await liveness.all_quarantined(3)
    for client in ("a", "b"):
        await away.run.evictions.evict(client, BY)
    assert not await liveness.all_quarantined(1), "these may be reinstated"


async def test_quarantines_and_proposals_end_when_their_until_round_opens(away: Any) -> None:
    run = away.run
    await away.open(1, ["c"])
    assert "released" not in await away.happened()
    await away.open(3, ["a", "b", "c"])
    assert (await run.evictions.barred()).quarantined == {}
    assert list(await run.tickets.outstanding()) == ["a", "b", "c"]
    events = sorted((e["type"], e["client"]) for e in (await away.last_events(3))[:2])
    assert events == [("dismissed", "b"), ("released", "a")]
    dismissed = next(e for e in await away.last_events(3) if e["type"] == "dismissed")
    assert dismissed["reason"] == "nobody decided in time"


async def test_quarantined_clients_take_part_in_the_final_evaluation(away: Any) -> None:
    await away.open(1, ["a", "c"], kind="evaluate", phase="evaluating")
    assert list(await away.run.tickets.outstanding()) == ["a", "c"]
    assert list((await away.run.evictions.barred()).quarantined) == ["a", "b"]


@pytest.mark.parametrize("policy", ["buffered"])
async def test_pulls_of_quarantined_clients_are_ignored(away: Any, policy: str) -> None:
    await away.open(1, ["c"])
    events = await away.happened()
    await away.run.tickets.pull("a")
    assert await away.happened() == events
    await away.open(3, [])
    await away.run.tickets.pull("a")
    assert (await away.happened())[-1] == "pull"


async def test_proposal_is_decided_only_once_and_confirmation_evicts_the_client(away: Any) -> None:
    run = away.run
    for client in ("a", "c", "nobody"):
        assert await run.evictions.confirm(client, BY) == ("gone", ""), "only a proposal can be"
        assert await run.evictions.dismiss(client, BY) == ("gone", "")
    assert await run.evictions.confirm("b", BY) == ("confirmed", "")
    for decide in (run.evictions.confirm, run.evictions.dismiss):
        assert await decide("b", BY) == ("gone", "")
    barred = await run.evictions.barred()
    assert list(barred.quarantined) == ["a"]
    confirmed = ConfirmedFinding(**FINDING.model_dump(), confirmed="a test")
    assert barred.evicted == {"b": confirmed}
    (event,) = await away.last_events(1)
    assert event == {"type": "confirmed", "client": "b", "reason": "a test"}


@pytest.mark.parametrize("everywhere", [False, True])
async def test_confirmed_eviction_can_apply_to_the_whole_federation(
    away: Any, everywhere: bool
) -> None:
    assert await away.run.evictions.confirm("b", BY, everywhere) == ("confirmed", "")
    (evicted,) = (await away.run.evictions.evicted()).values()
    barred = (await away.stores.clients.facts(["b"]))["b"].barred
    assert barred == (evicted if everywhere else None)
    read = await away.stores.events.read("0-0", 0.001)
    events = [(event.type, event.fields.get("client")) for event in read]
    assert (("barred", "b") in events) == everywhere


async def test_evaluation_does_not_wait_for_a_client_whose_eviction_is_confirmed(away: Any) -> None:
    await away.open(1, ["b", "c"], kind="evaluate", phase="evaluating")
    assert list(await away.run.tickets.outstanding()) == ["b", "c"]
    assert await away.run.evictions.confirm("b", BY) == ("confirmed", "")
    assert list(await away.run.tickets.outstanding()) == ["c"]


async def test_client_can_take_part_after_its_proposal_is_dismissed(away: Any) -> None:
    assert await away.run.evictions.dismiss("b", BY) == ("dismissed", "")
    assert await liveness_of(away).candidates(1) == ["b", "c"]
    (event,) = await away.last_events(1)
    assert event == {"type": "dismissed", "client": "b", "reason": "a test"}


async def test_eviction_replaces_a_quarantine(away: Any) -> None:
    run = away.run
    assert await run.evictions.evict("a", BY) == ("evicted", "")
    assert list((await run.evictions.barred()).quarantined) == ["b"]
    await away.open(1, ["c"])
    await away.quarantine(1, a=held(9))
    assert list((await run.evictions.barred()).quarantined) == ["b"], "who is evicted stays that"


async def test_reinstating_a_client_ends_its_quarantine_or_proposal(away: Any) -> None:
    run = away.run
    assert await run.evictions.reinstate("a", BY) == ("reinstated", "")
    assert await run.evictions.reinstate("a", BY) == ("already", "")
    assert await run.evictions.reinstate("b", BY) == ("reinstated", "")
    assert (await run.evictions.barred()).quarantined == {}


async def test_founders_are_the_clients_that_joined_before_round_0_opened(live_run: Any) -> None:
    await live_run.join("a", "b")
    assert (await live_run.run.evictions.barred()).standing == Standing(2, 2)
    await live_run.open(0, ["a", "b"])
    await live_run.join("c")
    await live_run.open(1, ["a", "b", "c"])
    assert (await live_run.run.evictions.barred()).standing == Standing(3, 2)


DECISIONS = {"evict": "c", "reinstate": "a", "confirm": "b", "dismiss": "b"}
"""Each decision, with a client of `away` about which an operator can decide this."""


async def ended(away: Any) -> str:
    """Ends the run; returns its final state."""
    await away.run.state.end(away.fence, NOW)
    return str((await away.stores.runs.entry(away.run.run)).state)


@pytest.mark.parametrize("decision", DECISIONS)
async def test_no_decision_without_effect_is_made_after_the_end_of_a_run(
    away: Any, decision: str
) -> None:
    evictions, audit = away.run.evictions, away.stores.audit
    state = await ended(away)
    barred, entries = await evictions.barred(), await audit.entries(0, 10)
    assert await getattr(evictions, decision)(DECISIONS[decision], BY) == ("over", state)
    expected = ("gone", "") if decision in ("confirm", "dismiss") else ("unknown", "")
    assert await getattr(evictions, decision)("nobody", BY) == expected
    assert (await evictions.barred(), await audit.entries(0, 10)) == (barred, entries)


async def test_client_of_a_run_that_has_ended_can_be_reinstated_from_its_eviction(
    away: Any,
) -> None:
    run, redis = away.run, away.stores.redis.client
    await run.evictions.evict("c", BY)
    await ended(away)
    await redis.delete(run.events.key)  # as after a day
    assert await run.evictions.reinstate("c", BY) == ("reinstated", "")
    assert await run.evictions.reinstate("c", BY) == ("already", "")
    assert await run.evictions.evicted() == {}
    assert await redis.ttl(run.events.key) > 0, "Redis must not keep the new event forever"


@pytest.mark.parametrize("decision", DECISIONS)
async def test_decisions_write_no_key_of_a_deleted_run(away: Any, decision: str) -> None:
    """An api process may have looked up the run before another process deleted it."""
    run, runs, redis = away.run, away.stores.runs, away.stores.redis.client
    client = DECISIONS[decision]
    if decision == "reinstate":
        await run.evictions.evict(client, BY)
    kept = {name: await redis.dump(name) for name in await redis.keys(run.keys.prefix + "*")}
    await ended(away)
    assert await runs.delete(run.run, BY) == "deleted"
    await runs.forget(run.run)
    decide = getattr(run.evictions, decision)
    gone = "gone" if decision in ("confirm", "dismiss") else "deleted"
    assert await decide(client, BY) == (gone, "")
    assert await redis.keys(run.keys.prefix + "*") == []
    # Until a worker has removed the run's keys, the proposal and the eviction are still there.
    for name, value in kept.items():
        await redis.restore(name, 0, value)
    entries = await away.stores.audit.entries(0, 20)
    assert await decide(client, BY) == ("deleted", "")
    assert await away.stores.audit.entries(0, 20) == entries
