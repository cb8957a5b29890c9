"""The API's operations on the state: joining, uploads, pulls, decisions, reads."""

from typing import Any

import pytest

from rampart_fl.services.aggregator.state.redis_access import connect
from rampart_fl.services.aggregator.state.round_store import RoundStore
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.protocol.messages import Receipt, RoundRecord

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
DIGEST = "d" * 64
OTHER = "e" * 64


# -- joining and tokens ------------------------------------------------------------------------


async def test_a_join_token_makes_one_client_however_often_it_is_sent(store: RoundStore) -> None:
    await store.add_joins({"j": {"expires_at": NOW + 60}})
    first = await store.join("j", "hash", None, "client-1", NOW, NOW + 600, 77)
    assert first[:2] == ("joined", "client-1")
    assert first[2]["sample_cap"] == 77
    again = await store.join("j", "hash", None, "client-2", NOW + 90, NOW + 900, 77)
    assert again == first, "the same request again, even after the join token expired"
    assert await store.join("j", "other", None, "client-3", NOW, NOW + 600, 77) == ("used", "", {})
    assert list(await store.clients()) == ["client-1"]
    assert await store.client_of("hash") == {"client": "client-1", "expires_at": NOW + 600}
    assert [e.type for e in await store.events("0-0", 0.001)] == ["joined"]


async def test_join_tokens_may_bind_the_id_and_the_cap(store: RoundStore) -> None:
    await store.add_joins({"j": {"expires_at": NOW + 60, "client_id": "bank", "sample_cap": 5}})
    answer, client, known = await store.join("j", "h", "wished", "fresh", NOW, NOW + 9, 77)
    assert (answer, client, known["sample_cap"]) == ("joined", "bank", 5)


async def test_refused_joins(store: RoundStore) -> None:
    await store.add_joins({name: {"expires_at": NOW} for name in ("a", "b", "c")})
    assert (await store.join("garbage", "h", None, "x", NOW, NOW, 1))[0] == "unknown"
    assert (await store.join("a", "h", None, "x", NOW + 1, NOW, 1))[0] == "expired"
    assert (await store.join("a", "h", "bank", "x", NOW, NOW, 1))[0] == "joined"
    assert (await store.join("b", "h2", "bank", "x", NOW, NOW, 1))[:2] == ("taken", "bank")
    assert (await store.join("c", "h", "thief", "x", NOW, NOW, 1))[0] == "token-taken"
    assert (await store.client_of("h"))["client"] == "bank", "nobody takes a token over"
    assert (await store.join("b", "h3", "shop", "x", NOW, NOW, 1))[0] == "joined", (
        "a refused attempt does not use the join token up"
    )


async def test_tokens_are_rotated_and_revoked(founded: Any) -> None:
    store = founded.store
    await founded.join("a", "b")
    assert await store.change_token("a", "new", NOW + 9) == "done"
    assert await store.client_of("token-a") is None
    assert await store.client_of("new") == {"client": "a", "expires_at": NOW + 9}
    assert await store.change_token("a", "token-b", NOW + 9) == "taken"
    assert await store.change_token("a", "new", NOW + 10) == "done", "once more is no error"
    assert await store.change_token("a", "", 0) == "done"
    assert await store.client_of("new") is None
    assert await store.client_of("") is None
    assert await store.change_token("a", "later", NOW + 9) == "done"
    assert await store.change_token("nobody", "x", NOW) == "unknown"
    assert (await founded.happened())[-4:] == ["rotated", "rotated", "revoked", "rotated"]


# -- uploads -----------------------------------------------------------------------------------


async def test_an_update_is_accepted_once(founded: Any) -> None:
    store = founded.store
    await founded.open(0, ["a"])
    receipt = Receipt(
        round=0,
        kind="update",
        client="a",
        digest=DIGEST,
        samples=3,
        metrics={"loss": 0.1234567890123456, "gap": -1e-300},
    )
    assert await store.accept(receipt) == ("accepted", receipt)
    assert await store.ticket("a") is None
    later = receipt.model_copy(update={"samples": 4})
    assert await store.accept(later) == ("accepted", receipt), "the first receipt stands, exactly"
    conflict = receipt.model_copy(update={"digest": OTHER})
    assert await store.accept(conflict) == ("conflict", None)
    assert await store.receipts(0) == [receipt]
    assert (await founded.happened()).count("update") == 1


@pytest.mark.parametrize(
    ("client", "round_", "kind", "answer"),
    [
        ("stranger", 1, "update", "no-ticket"),
        ("a", 0, "update", "late"),
        ("a", 2, "update", "no-ticket"),
        ("a", 1, "probe", "no-ticket"),
        ("a", 1, "evaluation", "no-ticket"),
        ("barred", 1, "update", "evicted"),
    ],
)
async def test_refused_uploads(
    founded: Any, client: str, round_: int, kind: str, answer: str
) -> None:
    store = founded.store
    await founded.join("a", "barred")
    await founded.open(0, ["a"])
    await founded.open(1, ["a", "barred"])
    await store.evict("barred", {"reason": "x"})
    assert await store.accept(founded.receipt(client, round_, kind)) == (answer, None)
    assert await store.every_receipt() == []


@pytest.mark.parametrize(
    ("policy", "phase", "answer"),
    [
        ("sync", "aggregating", "late"),
        ("sync", "published", "late"),
        ("buffered", "aggregating", "accepted"),
        ("buffered", "published", "accepted"),
    ],
)
async def test_after_the_close_only_the_buffered_policy_takes_updates(
    founded: Any, phase: str, answer: str
) -> None:
    await founded.open(0, ["a"])
    await founded.store.close(founded.fence, 0, "0-0")
    if phase == "published":
        await founded.publish(RoundRecord(round=0, status="published"))
    assert (await founded.store.accept(founded.receipt("a")))[0] == answer


async def test_evaluations_are_for_the_end(founded: Any) -> None:
    store = founded.store
    await founded.open(0, ["a"], kind="evaluate", phase="evaluating")
    assert (await store.accept(founded.receipt("a", kind="update")))[0] == "no-ticket"
    assert (await store.accept(founded.receipt("a", kind="evaluation")))[0] == "accepted"
    await store.finish(founded.fence)
    assert (await store.accept(founded.receipt("a", kind="evaluation")))[0] == "accepted"
    assert (await store.accept(founded.receipt("b", kind="evaluation")))[0] == "no-ticket"


async def test_a_probe_and_an_update_of_one_round_have_receipts_of_their_own(founded: Any) -> None:
    store = founded.store
    await founded.open(0, ["a"], kind="probe")
    await store.accept(founded.receipt("a", kind="probe"))
    await store.grant(founded.fence, "a", founded.ticket(0))
    await store.accept(founded.receipt("a", digest=OTHER))
    assert [(r.kind, r.digest) for r in await store.receipts(0)] == [
        ("probe", DIGEST),
        ("update", OTHER),
    ]
    assert len(await store.every_receipt()) == 2


# -- pulls -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["buffered"])
async def test_a_pull_asks_once_and_a_ticket_answers_it(founded: Any) -> None:
    store = founded.store
    await founded.join("a")
    await store.pull("a")
    assert "pull" not in await founded.happened(), "there is no round yet"
    await founded.open(0, [])
    await store.pull("a")
    await store.pull("a")
    assert (await founded.happened()).count("pull") == 1
    await store.grant(founded.fence, "a", founded.ticket(0))
    await store.pull("a")
    assert (await founded.happened()).count("pull") == 1, "it has a ticket"
    await store.accept(founded.receipt("a"))
    await store.pull("a")
    assert (await founded.happened()).count("pull") == 2
    await founded.open(1, ["a"])
    assert await store.client.hlen(store.key("pulls")) == 0, "the next round's ticket answers it"


async def test_pulls_are_ignored_where_they_have_no_place(founded: Any) -> None:
    await founded.open(0, [])
    await founded.store.pull("a")
    assert "pull" not in await founded.happened(), "the sync policy has no pulls"


@pytest.mark.parametrize("policy", ["buffered"])
async def test_an_evicted_client_pulls_in_vain(founded: Any) -> None:
    store = founded.store
    await founded.join("a", "b")
    await founded.open(0, [])
    await store.pull("a")
    await store.evict("a", {"reason": "x"})
    await store.evict("b", {"reason": "x"})
    await store.pull("b")
    assert await store.client.hlen(store.key("pulls")) == 0


# -- decisions ---------------------------------------------------------------------------------


async def test_operators_evict_and_reinstate(founded: Any) -> None:
    store = founded.store
    await founded.join("a")
    await founded.open(0, ["a"])
    assert await store.evict("a", {"reason": "why", "at": NOW}) == "evicted"
    assert await store.evict("a", {"reason": "again"}) == "already"
    assert await store.evict("nobody", {"reason": "x"}) == "unknown"
    assert await store.evicted() == {"a": {"reason": "why", "at": NOW}}
    standing = await store.standing("a")
    assert (standing.ticket, standing.eviction["reason"]) == (None, "why")
    assert await store.reinstate("a", "a mistake") == "reinstated"
    assert await store.reinstate("a", "a mistake") == "already"
    assert await store.reinstate("nobody", "") == "unknown"
    assert await store.evicted() == {}
    events = await store.events("0-0", 0.001)
    assert [e.type for e in events[-2:]] == ["evicted", "reinstated"]
    assert [e.fields["reason"] for e in events[-2:]] == ["why", "a mistake"]


async def test_the_status_goes_one_way_once_it_stops(founded: Any) -> None:
    store = founded.store
    assert await store.set_status("paused") == ("done", "paused")
    assert await store.set_status("running") == ("done", "running")
    assert await store.set_status("stopping") == ("done", "stopping")
    assert await store.set_status("running") == ("over", "stopping")
    assert await store.set_status("stopping") == ("done", "stopping")


async def test_nothing_can_be_steered_before_it_is_founded(store: RoundStore) -> None:
    assert await store.set_status("paused") == ("unfounded", "")
    assert await store.brief() is None
    assert await store.federation() is None
    assert (await store.standing("a")).brief is None
    assert await store.last_event() == "0-0"


# -- reads -------------------------------------------------------------------------------------


async def test_where_a_client_stands(founded: Any) -> None:
    await founded.open(4, ["a"], deadline=NOW + 7.25)
    standing = await founded.store.standing("a")
    assert standing.ticket == founded.ticket(4)
    assert standing.eviction is None
    assert standing.brief == await founded.store.brief()
    assert (standing.brief.round, standing.brief.deadline) == (4, NOW + 7.25)


async def test_when_clients_were_seen(store: RoundStore) -> None:
    await store.saw({})
    assert await store.seen() == {}
    await store.saw({"a": NOW, "b": NOW + 0.125})
    await store.saw({"a": NOW + 1})
    assert await store.seen() == {"a": NOW + 1, "b": NOW + 0.125}


async def test_attempts_are_counted_by_name_and_window(store: RoundStore) -> None:
    counts = [await store.count_attempt("join:1.2.3.4", 60, now) for now in (0, 59, 60, 61)]
    assert counts == [1, 2, 1, 2]
    assert await store.count_attempt("join:other", 60, 0) == 1


async def test_records_come_in_order_and_with_gaps(founded: Any) -> None:
    store = founded.store
    for number in (0, 2, 10):
        await founded.open(number, [])
        await founded.publish(RoundRecord(round=number, status="published"))
    assert [r.round for r in await store.records(-3, 99)] == [0, 2, 10]
    assert [r.round for r in await store.records(1, 2)] == [2]
    assert await store.records(5, 4) == []
    assert await store.record(1) is None


async def test_namespaces_do_not_meet(founded: Any) -> None:
    other = RoundStore(founded.store.client, "somewhere-else")
    await founded.join("a")
    assert await other.clients() == {}
    assert await other.acquire("worker-2", 0.01, NOW) is not None


async def test_durability_is_asked_of_redis(store: RoundStore) -> None:
    assert await store.durable()


async def test_a_redis_that_is_away_is_unavailable() -> None:
    client = connect("redis://127.0.0.1:1/0", None)
    client.connection_pool.connection_kwargs["retry"]._retries = 0
    store = RoundStore(client, "nowhere")
    asks = (store.ping(), store.brief(), store.standing("a"), store.pull("a"), store.durable())
    for attempt in asks:
        with pytest.raises(Unavailable, match="Redis"):
            await attempt
    await client.aclose()
