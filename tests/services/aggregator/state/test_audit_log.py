"""Tests, with a real Redis, that an action and its audit entry are written atomically."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any, get_args

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution, AuditLog
from rampart_fl.services.aggregator.state.join_token_store import JoinTokenRecord
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.audit import START, ActName, AuditBroken, check_chain
from tests.services.aggregator.conftest import held

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
BY = Attribution("ada", "a test", NOW)
JOIN = JoinTokenRecord(NOW + 60)
OTHER = Experiment.from_tables(
    {"name": "other", "data": {"dataset": "digits"}, "model": "logistic"}
)
ACTS: dict[str, tuple[str, Callable[[Any], Awaitable[Any]]]] = {
    "submit": ("other-3", lambda f: f.stores.runs.submit(OTHER, "third", BY)),
    "cancel": ("test-2", lambda f: f.stores.runs.cancel("test-2", BY)),
    "delete": ("test-2", lambda f: f.stores.runs.delete("test-2", BY)),
    "pause": ("test-1", lambda f: f.run.state.set_status("paused", BY)),
    "resume": ("test-1", lambda f: f.run.state.set_status("running", BY)),
    "stop": ("test-1", lambda f: f.run.state.set_status("stopping", BY)),
    "mode": ("test-1", lambda f: f.run.state.set_mode("observe", BY)),
    "evict": ("a", lambda f: f.run.evictions.evict("a", BY)),
    "reinstate": ("barred", lambda f: f.run.evictions.reinstate("barred", BY)),
    "confirm": ("doubtful", lambda f: f.run.evictions.confirm("doubtful", BY)),
    "dismiss": ("doubtful", lambda f: f.run.evictions.dismiss("doubtful", BY)),
    "evict-everywhere": ("a", lambda f: f.stores.clients.bar("a", BY)),
    "reinstate-everywhere": ("out", lambda f: f.stores.clients.readmit("out", BY)),
    "label": ("a", lambda f: f.stores.clients.label("a", {"site": "eu"}, BY)),
    "replace-token": ("a", lambda f: f.stores.clients.change_token("a", "new", NOW, BY)),
    "revoke-token": ("a", lambda f: f.stores.clients.change_token("a", "", 0, BY)),
    "make-join-tokens": ("", lambda f: f.stores.join_tokens.add({"fresh": JOIN}, BY)),
    "revoke-join-token": ("spare", lambda f: f.stores.join_tokens.revoke("spare", BY)),
    "add-operator": ("vic", lambda f: f.stores.operators.add("vic", "viewer", "t1", None, BY)),
    "revoke-operator": ("vera", lambda f: f.stores.operators.revoke("vera", BY)),
}
"""For each action: its target, and a function that performs it."""


@pytest.fixture
async def eventful(live_run: Any, experiment: Experiment) -> Any:
    """A federation in which an operator can perform every action except `resume`."""
    stores = live_run.stores
    await stores.runs.submit(experiment, "second", BY)
    await live_run.join("a", "barred", "doubtful", "out")
    await live_run.open(0, ["a"])
    await live_run.quarantine(0, doubtful=held(3, "proposal"))
    await live_run.run.evictions.evict("barred", BY)
    await stores.clients.bar("out", BY)
    await stores.join_tokens.add({"spare": JOIN}, BY)
    assert (await stores.operators.add("vera", "viewer", "t0", None, BY))[0] == "added"
    return live_run


@pytest.mark.parametrize("name", get_args(ActName))
async def test_action_and_its_audit_entry_are_written_atomically(
    eventful: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, (target, act) = eventful.stores, ACTS[name]
    if name == "resume":
        await eventful.run.state.set_status("paused", BY)
    already = len(await stores.audit.entries(0, 100))
    dumps, end = [], AuditLog.end

    async def late(self: AuditLog) -> tuple[int, str]:
        """Returns the end of the log; the first call returns an outdated end."""
        dumps.append(await eventful.dump())
        number, head = await end(self)
        return (number, head) if len(dumps) > 1 else (number - 1, "f" * 64)

    monkeypatch.setattr(AuditLog, "end", late)
    await act(eventful)
    assert dumps[0] == dumps[1], "without its entry, the act changes nothing"
    after = await eventful.dump()
    changed = {key for key in after | dumps[0] if after.get(key) != dumps[0].get(key)}
    assert {stores.audit.keys.audit, stores.audit.keys.audit_head} < changed, "with it, it does"
    monkeypatch.undo()
    entries = await stores.audit.entries(0, 100)
    assert len(entries) == already + 1
    last = entries[-1]
    assert (last.act, last.target) == (name, target)
    assert (last.actor, last.reason, last.time) == ("ada", "a test", "1970-01-12T13:46:40.000Z")
    assert check_chain(entries) == await stores.audit.end()
    if name != "replace-token":  # Each replacement is a new action.
        before = await eventful.dump()
        await act(eventful)
        assert await eventful.dump() == before, "what is already so is no act"


async def test_refused_actions_change_nothing_and_leave_no_audit_entry(eventful: Any) -> None:
    stores = eventful.stores
    await eventful.run.state.set_status("stopping", BY)
    before = await eventful.dump()
    assert await eventful.run.evictions.evict("nobody", BY) == ("unknown", "")
    assert await eventful.run.evictions.evict("barred", BY) == ("already", "")
    assert await eventful.run.evictions.reinstate("a", BY) == ("already", "")
    assert await eventful.run.evictions.confirm("a", BY) == ("gone", "")
    assert await eventful.run.evictions.dismiss("a", BY) == ("gone", "")
    assert await stores.clients.bar("nobody", BY) == "unknown"
    assert await stores.clients.readmit("a", BY) == "already"
    assert await stores.clients.label("nobody", {}, BY) == "unknown"
    assert await stores.runs.cancel("test-1", BY) == "running"
    assert await stores.runs.delete("test-1", BY) == "current"
    assert await stores.runs.delete("test-9", BY) == "unknown"
    assert await stores.clients.change_token("nobody", "x", NOW, BY) == "unknown"
    assert await stores.clients.change_token("a", "token-barred", NOW, BY) == "taken"
    assert await stores.join_tokens.revoke("nothing", BY) == "unknown"
    assert await stores.join_tokens.revoke("join-a", BY) == "used"
    assert (await stores.operators.add("vera", "operator", "t9", None, BY))[0] == "taken"
    assert await stores.operators.revoke("nobody", BY) == "unknown"
    assert await eventful.run.state.set_status("running", BY) == ("over", "stopping")
    assert await eventful.run.state.set_mode("observe", BY) == ("over", "stopping")
    assert await eventful.dump() == before


async def test_client_that_changes_its_own_token_leaves_no_audit_entry(eventful: Any) -> None:
    before = await eventful.stores.audit.end()
    assert await eventful.stores.clients.change_token("a", "own", NOW, "token-a") == "done"
    assert await eventful.stores.audit.end() == before


async def test_concurrent_actions_of_several_processes_form_one_hash_chain(
    live_run: Any, redis_url: str
) -> None:
    clients = [f"c{number}" for number in range(24)]
    await live_run.join(*clients)
    already, _ = await live_run.stores.audit.end()
    namespace = live_run.stores.keys.prefix.strip("{}:")
    async with AsyncExitStack() as opened:
        processes = [
            await opened.enter_async_context(aclosing(Stores.connect(redis_url, None, namespace)))
            for _ in range(3)
        ]

        async def act(number: int, stores: Stores) -> None:
            by = Attribution(f"operator-{number}", "a race", NOW)
            for client in clients[number::3]:
                run = stores.of_run(live_run.run.run)
                assert await run.evictions.evict(client, by) == ("evicted", "")

        await asyncio.gather(*(act(number, stores) for number, stores in enumerate(processes)))
    entries = await live_run.stores.audit.entries(0, 100)
    assert check_chain(entries) == (already + len(clients), entries[-1].hash)
    done = [(entry.actor, entry.target) for entry in entries[already:]]
    assert sorted(done) == sorted((f"operator-{n % 3}", c) for n, c in enumerate(clients))


async def test_audit_entries_are_read_in_pages(live_run: Any) -> None:
    audit = live_run.stores.audit
    await live_run.join("a", "b", "c")
    entries = await audit.entries(0, 10)
    assert [entry.number for entry in entries] == [0, 1, 2, 3]
    assert await audit.entries(1, 1) == entries[1:2]
    assert await audit.entries(3, 10) == entries[3:]
    assert await audit.entries(4, 10) == []


async def test_new_audit_log_is_empty(stores: Stores) -> None:
    assert await stores.audit.end() == (0, START)
    assert await stores.audit.entries(0, 10) == []


async def test_join_token_entry_states_count_expiry_and_client_ids(live_run: Any) -> None:
    joins = {name: JOIN._replace(client_id=name) for name in ("a", "b")}
    await live_run.stores.join_tokens.add(joins, BY)
    (entry,) = await live_run.stores.audit.entries(1, 10)
    until = "1970-01-12T13:47:40.000Z"
    assert entry.details == {"count": 2, "expires_at": until, "clients": ["a", "b"]}


async def test_unparsable_entry_is_reported_with_its_number(live_run: Any) -> None:
    stores = live_run.stores
    await live_run.join("a", "b")
    await stores.redis.client.lset(stores.audit.keys.audit, 1, "{}")
    with pytest.raises(AuditBroken, match="entry 1 cannot be parsed"):
        await stores.audit.entries(0, 10)
