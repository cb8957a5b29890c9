"""Clients and their tokens, in a real Redis."""

from math import inf
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.client_facts import LastRequest
from rampart_fl.services.aggregator.state.client_store import (
    ClientRecord,
    TokenRecord,
)
from rampart_fl.services.aggregator.state.join_token_store import JoinTokenRecord
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.protocol.clients import BarReason

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
BY = Attribution("ada", "a test", NOW)


async def test_join_token_registers_one_client_even_if_the_request_is_repeated(
    stores: Stores,
) -> None:
    await stores.join_tokens.add({"j": JoinTokenRecord(NOW + 60)}, BY)
    first = await stores.clients.join("j", "hash", None, "client-1", NOW, NOW + 600)
    assert first[:2] == ("joined", "client-1")
    assert first[2] == ClientRecord(NOW, "hash", NOW + 600)
    again = await stores.clients.join("j", "hash", None, "client-2", NOW + 90, NOW + 900)
    assert again == first, "the same request again, even after the join token expired"
    assert await stores.clients.join("j", "other", None, "client-3", NOW, NOW + 600) == (
        "used",
        "",
        None,
    )
    assert list(await stores.clients.records()) == ["client-1"]
    assert await stores.clients.of_token("hash") == TokenRecord("client-1", NOW + 600)
    assert await stores.clients.change_token("client-1", "", 0.0, BY) == "done"
    late = await stores.clients.join("j", "hash", None, "client-2", NOW + 91, NOW + 900)
    assert late == ("used", "", None), "the token was revoked"
    assert [e.type for e in await stores.events.read("0-0", 0.001)] == ["joined", "revoked"]


async def test_join_token_can_fix_the_client_id_and_the_sample_cap(stores: Stores) -> None:
    await stores.join_tokens.add({"j": JoinTokenRecord(NOW + 60, "bank", 5)}, BY)
    answer, client, known = await stores.clients.join("j", "h", "wished", "fresh", NOW, NOW + 9)
    assert known is not None
    assert (answer, client, known.sample_cap) == ("joined", "bank", 5)


async def test_refused_joins_state_the_reason_and_do_not_use_up_the_token(stores: Stores) -> None:
    await stores.join_tokens.add({name: JoinTokenRecord(NOW) for name in ("a", "b", "c")}, BY)
    assert (await stores.clients.join("garbage", "h", None, "x", NOW, NOW))[0] == "unknown"
    assert (await stores.clients.join("a", "h", None, "x", NOW + 1, NOW))[0] == "expired"
    assert (await stores.clients.join("a", "h", "bank", "x", NOW, NOW))[0] == "joined"
    assert (await stores.clients.join("b", "h2", "bank", "x", NOW, NOW))[:2] == ("taken", "bank")
    assert (await stores.clients.join("c", "h", "thief", "x", NOW, NOW))[0] == "token-taken"
    assert await stores.clients.of_token("h") == TokenRecord("bank", NOW), (
        "nobody takes a token over"
    )
    assert (await stores.clients.join("b", "h3", "shop", "x", NOW, NOW))[0] == "joined", (
        "a refused attempt does not use the join token up"
    )


async def test_tokens_are_rotated_and_revoked(live_run: Any) -> None:
    stores = live_run.stores
    await live_run.join("a", "b")
    assert await stores.clients.change_token("a", "new", NOW + 9, "token-a") == "done"
    assert await stores.clients.of_token("token-a") is None
    assert await stores.clients.of_token("new") == TokenRecord("a", NOW + 9)
    assert await stores.clients.change_token("a", "token-b", NOW + 9, "new") == "taken"
    assert await stores.clients.change_token("a", "new", NOW + 10, "token-a") == "done", (
        "once more is no error"
    )
    assert await stores.clients.change_token("a", "", 0, BY) == "done"
    assert await stores.clients.of_token("new") is None
    assert await stores.clients.of_token("") is None
    assert await stores.clients.change_token("a", "later", NOW + 9, BY) == "done"
    assert await stores.clients.change_token("nobody", "x", NOW, BY) == "unknown"
    assert [e.type for e in await stores.events.read("0-0", 0.001)][-4:] == [
        "rotated",
        "rotated",
        "revoked",
        "rotated",
    ]


@pytest.mark.parametrize("current", ["", "by-the-operator"], ids=["revoked", "replaced"])
async def test_client_cannot_change_a_token_that_an_operator_has_just_changed(
    live_run: Any, current: str
) -> None:
    """The request of the client began before the operator's request."""
    clients = live_run.stores.clients
    await live_run.join("a")
    assert await clients.change_token("a", current, NOW + 9, BY) == "done"
    for wanted in ("own", "token-a"):
        assert await clients.change_token("a", wanted, NOW + 9, "token-a") == "invalid"
        assert await clients.of_token(wanted) is None
    record = await clients.record("a")
    assert record is not None
    assert record.token_hash == current


async def test_time_and_agent_of_the_last_request_are_stored_per_client(stores: Stores) -> None:
    await stores.clients.saw({})
    assert await stores.clients.silences() == {}
    first = await stores.redis.time()
    older = LastRequest(200.0, "rampart-fl/0.1", True)
    await stores.clients.saw({"a": older, "b": LastRequest(100.0, "", False)})
    await stores.clients.saw({"a": LastRequest(10.0, "rampart-fl/0.2", False)})
    last = await stores.redis.time()
    silences = await stores.clients.silences()
    facts = await stores.clients.facts(["b", "a", "c"])
    assert await stores.clients.facts([]) == {}
    assert list(facts) == ["b", "a", "c"]
    for client, ago in {"a": 10.0, "b": 100.0}.items():
        seen, silent = facts[client].seen, facts[client].silent
        assert seen is not None
        assert silent is not None
        assert first - ago - 1e-3 <= seen <= last - ago + 1e-3, "by Redis' clock"
        assert ago - 1e-3 <= silences[client] <= silent
        assert facts[client].online(silent + 1)
        assert not facts[client].online(silent)
    assert [facts[client].software for client in "abc"] == ["rampart-fl/0.2", "", ""]
    assert facts["c"] == (None, None, "", None)
    assert not facts["c"].online(1e9)


async def test_a_client_that_is_away_is_offline_at_once_but_its_last_request_is_known(
    stores: Stores,
) -> None:
    await stores.clients.saw({"a": LastRequest(0.0, "", False)})
    await stores.clients.saw({"a": LastRequest(5.0, "", True)})
    now = await stores.redis.time()
    assert await stores.clients.silences() == {"a": inf}
    facts = (await stores.clients.facts(["a"]))["a"]
    assert facts.seen == pytest.approx(now - 5, abs=1)
    assert facts.silent == inf and not facts.online(1e9)


async def test_labels_are_set_by_the_join_token_and_can_be_changed(stores: Stores) -> None:
    joins = {"j": JoinTokenRecord(NOW + 60, labels={"site": "eu", "ward": "3"})}
    await stores.join_tokens.add(joins, BY)
    await stores.clients.join("j", "h", None, "a", NOW, NOW + 9)
    assert (await stores.clients.records())["a"].labels == {"site": "eu", "ward": "3"}
    assert await stores.clients.label("a", {"site": "us"}, BY) == "done"
    assert (await stores.clients.records())["a"].labels == {"site": "us"}
    assert await stores.clients.label("a", {}, BY) == "done"
    assert (await stores.clients.records())["a"].labels == {}


async def test_barred_client_can_be_readmitted(live_run: Any) -> None:
    clients = live_run.stores.clients
    await live_run.join("a")
    assert await clients.bar("a", BY) == "barred"
    assert await clients.bar("a", BY) == "already"
    why = BarReason(reason="a test", detector="operator", at=NOW)
    assert (await clients.facts(["a"]))["a"].barred == why
    assert (await live_run.run.tickets.standing("a")).barred.reason == "a test"
    assert await clients.readmit("a", BY) == "readmitted"
    assert (await clients.facts(["a"]))["a"].barred is None


async def test_unused_join_tokens_are_deleted_after_they_expired(stores: Stores) -> None:
    joins = {f"old-{n}": JoinTokenRecord(NOW - 1) for n in range(1500)}
    await stores.join_tokens.add(joins | {"valid": JoinTokenRecord(NOW + 1)}, BY)
    await stores.join_tokens.add({"used": JoinTokenRecord(NOW - 1)}, BY)
    assert (await stores.clients.join("used", "t", "ada", "", NOW - 2, NOW + 60))[0] == "joined"
    assert await stores.join_tokens.forget(NOW) == 1500
    assert await stores.join_tokens.forget(NOW) == 0
    assert set(await stores.redis.ask("hkeys", stores.keys.joins)) == {"valid", "used"}


async def test_clients_without_a_valid_token_are_found(stores: Stores) -> None:
    now, names = await stores.redis.time(), ("ada", "bob", "cleo")
    await stores.join_tokens.add({name: JoinTokenRecord(now + 60) for name in names}, BY)
    for name, lifetime in zip(names, (600, -1, 600), strict=True):
        await stores.clients.join(name, f"token of {name}", name, name, now, now + lifetime)
    assert await stores.clients.without_token(names) == {"bob"}
    assert await stores.clients.change_token("cleo", "", now, BY) == "done"
    assert await stores.clients.without_token({"ada", "cleo", "nobody"}) == {"cleo"}
    assert await stores.clients.without_token([]) == set()
