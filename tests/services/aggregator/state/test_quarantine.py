"""Quarantines, proposals and the mode, as a real Redis stores them."""

from typing import Any

import pytest

from rampart_fl.services.aggregator.state.redis_records import Event
from rampart_fl.services.aggregator.state.round_store import RoundStore
from rampart_fl.services.aggregator.worker.liveness import Liveness
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.protocol.messages import RoundRecord

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0


def why(until: int, kind: str = "quarantine") -> dict[str, Any]:
    """The stored facts about a client that is barred until a round."""
    return {"until": until, "kind": kind, "reason": "too far", "round": 0, "evidence": 2.5}


async def publish(
    founded: Any, round_: int, abstained: tuple[str, ...] = (), **away: dict[str, Any]
) -> None:
    """Publishes a round that quarantines clients."""
    record = RoundRecord(round=round_, status="published")
    position = await founded.store.last_event()
    await founded.store.publish(founded.fence, record, {}, {}, position, away, abstained)


async def last_events(store: RoundStore, count: int) -> list[dict[str, str]]:
    events: list[Event] = await store.events("0-0", 0.001)
    return [dict(event.fields) for event in events[-count:]]


@pytest.fixture
async def away(founded: Any) -> Any:
    """A federation whose round 0 has put `a` out until round 3, and proposed `b` until then."""
    await founded.join("a", "b", "c")
    await founded.open(0, ["a", "b", "c"])
    await publish(founded, 0, a=why(3), b=why(3, "proposal"))
    return founded


async def test_a_published_quarantine_stands_with_its_evidence(away: Any) -> None:
    barred = await away.store.barred()
    assert barred.quarantined == {"a": why(3), "b": why(3, "proposal")}
    assert list(barred.proposals) == ["b"]
    assert (barred.away(2), barred.away(3)) == ({"a", "b"}, set())
    assert barred.standing == Standing(3, 3, frozenset(), frozenset({"a", "b"}))
    told = {(event["type"], event.get("client")) for event in await last_events(away.store, 3)}
    assert told == {("quarantined", "a"), ("proposed", "b"), ("published", None)}
    assert list(await away.store.tickets()) == ["c"]


async def test_publishing_again_bars_nobody_again(away: Any) -> None:
    assert await away.store.reinstate("a", "a mistake") == "reinstated"
    events = await away.happened()
    await publish(away, 0, a=why(3))
    assert await away.happened() == events
    assert list((await away.store.barred()).quarantined) == ["b"]


async def test_who_is_out_gets_no_ticket_and_is_no_candidate(away: Any) -> None:
    store = away.store
    liveness = Liveness(store, 60, lambda: NOW)
    assert await liveness.candidates(1) == ["c"]
    assert await liveness.candidates(3) == ["a", "b", "c"]
    await away.open(1, ["a", "c"])
    await store.grant(away.fence, "b", away.ticket(1))
    assert list(await store.tickets()) == ["c"]
    assert (await store.accept(away.receipt("a", 1)))[0] == "no-ticket"


async def test_all_are_quarantined_only_where_nobody_else_is_left(away: Any) -> None:
    liveness = Liveness(away.store, 60, lambda: NOW)
    assert not await liveness.all_quarantined(1)
    await away.store.evict("c", {"reason": "x"})
    assert await liveness.all_quarantined(1)
    assert not await liveness.all_quarantined(3)
    for client in ("a", "b"):
        await away.store.evict(client, {"reason": "x"})
    assert not await liveness.all_quarantined(1), "these may be reinstated"


async def test_the_round_that_ends_a_quarantine_lets_the_client_back(away: Any) -> None:
    store = away.store
    await away.open(1, ["c"])
    assert "released" not in await away.happened()
    await away.open(3, ["a", "b", "c"])
    assert (await store.barred()).quarantined == {}
    assert list(await store.tickets()) == ["a", "b", "c"]
    told = sorted((e["type"], e["client"]) for e in (await last_events(store, 3))[:2])
    assert told == [("dismissed", "b"), ("released", "a")]
    dismissed = next(e for e in await last_events(store, 3) if e["type"] == "dismissed")
    assert dismissed["reason"] == "nobody decided in time"


async def test_in_the_end_who_is_out_measures_the_models_too(away: Any) -> None:
    await away.open(1, ["a", "c"], kind="evaluate", phase="evaluating")
    assert list(await away.store.tickets()) == ["a", "c"]
    assert list((await away.store.barred()).quarantined) == ["a", "b"]


@pytest.mark.parametrize("policy", ["buffered"])
async def test_who_is_out_pulls_in_vain(away: Any, policy: str) -> None:
    await away.open(1, ["c"])
    events = await away.happened()
    await away.store.pull("a")
    assert await away.happened() == events
    await away.open(3, [])
    await away.store.pull("a")
    assert (await away.happened())[-1] == "pull"


async def test_a_proposal_is_confirmed_or_dismissed_once(away: Any) -> None:
    store = away.store
    for client in ("a", "c", "nobody"):
        assert await store.confirm(client, "x") == "gone", "only a proposal can be"
        assert await store.dismiss(client, "x") == "gone"
    assert await store.confirm("b", "I looked") == "confirmed"
    assert await store.confirm("b", "again") == await store.dismiss("b", "again") == "gone"
    barred = await store.barred()
    assert list(barred.quarantined) == ["a"]
    stands = {"reason": "too far", "round": 0, "evidence": 2.5, "confirmed": "I looked"}
    assert barred.evicted == {"b": stands}
    (event,) = await last_events(store, 1)
    assert event == {"type": "confirmed", "client": "b", "reason": "I looked"}


async def test_a_dismissed_client_may_take_part(away: Any) -> None:
    assert await away.store.dismiss("b", "an odd sensor") == "dismissed"
    assert await Liveness(away.store, 60, lambda: NOW).candidates(1) == ["b", "c"]
    (event,) = await last_events(away.store, 1)
    assert event == {"type": "dismissed", "client": "b", "reason": "an odd sensor"}


async def test_an_eviction_takes_the_place_of_a_quarantine(away: Any) -> None:
    store = away.store
    assert await store.evict("a", {"reason": "I know"}) == "evicted"
    assert list((await store.barred()).quarantined) == ["b"]
    await away.open(1, ["c"])
    await publish(away, 1, a=why(9))
    assert list((await store.barred()).quarantined) == ["b"], "who is evicted stays that"


async def test_reinstating_ends_a_quarantine_too(away: Any) -> None:
    store = away.store
    assert await store.reinstate("a", "a mistake") == "reinstated"
    assert await store.reinstate("a", "a mistake") == "already"
    assert await store.reinstate("b", "a mistake") == "reinstated"
    assert (await store.barred()).quarantined == {}


async def test_founders_are_those_who_were_there_when_round_0_opened(founded: Any) -> None:
    await founded.join("a", "b")
    assert (await founded.store.barred()).standing == Standing(2, 2)
    await founded.open(0, ["a", "b"])
    await founded.join("c")
    await founded.open(1, ["a", "b", "c"])
    assert (await founded.store.barred()).standing == Standing(3, 2)


async def test_the_last_round_s_abstentions_are_told(founded: Any) -> None:
    await founded.open(0, ["a"])
    await publish(founded, 0, ("a", "b"))
    assert (await founded.store.federation()).abstained == ("a", "b")
    event, _ = await last_events(founded.store, 2)
    assert event == {"type": "abstained", "round": "0", "clients": "a b"}
    await founded.open(1, ["a"])
    await publish(founded, 1)
    assert (await founded.store.federation()).abstained == ()
    assert (await founded.happened()).count("abstained") == 1


async def test_the_mode_is_the_operator_s_once_it_is_said(founded: Any) -> None:
    store = founded.store
    assert (await store.federation()).mode is None
    assert await store.set_mode("observe", "a trial") == ("done", "observe")
    assert (await store.federation()).mode == "observe"
    assert (await store.barred()).standing.mode == "observe"
    (event,) = await last_events(store, 1)
    assert event == {"type": "mode", "mode": "observe", "reason": "a trial"}
    await store.set_status("stopping")
    assert await store.set_mode("evict", "too late") == ("over", "stopping")


async def test_no_mode_before_there_is_a_federation(store: RoundStore) -> None:
    assert await store.set_mode("observe", "x") == ("unfounded", "")
