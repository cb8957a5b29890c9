"""Clients' answers to the offer of a run, and its members, in a real Redis."""

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.join_token_store import JoinTokenRecord
from rampart_fl.services.aggregator.state.member_store import AnswerRecord
from rampart_fl.services.aggregator.state.redis_access import LeaseLost
from rampart_fl.services.aggregator.state.stores import RunStores, Stores
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from tests.services.aggregator.conftest import SNAPSHOT

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
BY = Attribution("ada", "a test", NOW)
SLOTS = 4


def yes(slot: int | None = None) -> AnswerRecord:
    """The answer of a client that accepts, and may ask for a slot."""
    return AnswerRecord(accept=True, at=NOW, slot=slot)


NO = AnswerRecord(accept=False, at=NOW, reason="too many epochs")


@pytest.fixture
async def offered(stores: Stores, experiment: Experiment) -> RunStores:
    """A run that is offered to clients; its worker has the fencing token 1."""
    assert await stores.lease.acquire("worker", 60, NOW) == 1
    info, _ = await stores.runs.submit(experiment, "first", BY)
    run = stores.of_run(info.run)
    assert await run.members.answer("a", yes(), SLOTS) == ("unfounded", "")
    await run.state.start(1, experiment, ModelSpec.of([]), SNAPSHOT, NOW)
    return run


async def test_answers_can_be_changed_until_slots_are_assigned(offered: RunStores) -> None:
    members = offered.members
    assert await members.answer("a", yes(2), SLOTS) == ("recorded", "")
    assert await members.answer("b", NO, SLOTS) == ("recorded", "")
    assert await members.acceptances() == {"a": 2}
    assert await members.answer("b", yes(), SLOTS) == ("recorded", "")
    assert await members.answer("a", NO, SLOTS) == ("recorded", "")
    assert await members.acceptances() == {"b": None}
    assert await members.answers() == {"a": NO, "b": yes()}
    assert await members.slots() == {}
    types = [event.type for event in await offered.events.read("0-0", 0.001)]
    assert types == ["founded", "accepted", "declined", "accepted", "declined"]


async def test_members_are_fixed_once_slots_are_assigned(offered: RunStores) -> None:
    members = offered.members
    await members.answer("a", yes(), SLOTS)
    await members.answer("b", yes(), SLOTS)
    await members.answer("c", NO, SLOTS)
    with pytest.raises(LeaseLost):
        await members.assign_slots(0, {"a": 1, "b": 0}, SLOTS)
    await members.assign_slots(1, {"a": 1, "b": 0}, SLOTS)
    assert await members.slots() == {"a": 1, "b": 0}
    await members.assign_slots(1, {"a": 0, "b": 1}, SLOTS)
    assert await members.slots() == {"a": 1, "b": 0}, "a second worker finds them fixed"
    assert await members.answer("a", yes(3), SLOTS) == ("member", "1")
    assert (await members.answer("a", NO, SLOTS))[0] == "frozen"
    standing = await offered.tickets.standing("b")
    assert (standing.slot, standing.answered) == (0, True)
    standing = await offered.tickets.standing("c")
    assert (standing.slot, standing.answered) == (None, True)


async def test_answers_that_change_during_the_draw_do_not_delay_the_start(
    offered: RunStores, stores: Stores
) -> None:
    """The worker has drawn slots for `a`, `b` and `c`; then `a` declines, and others accept."""
    members = offered.members
    for client in ("a", "b", "c", "declined"):
        await members.answer(client, NO if client == "declined" else yes(), 3)
    await members.answer("a", NO, 3)
    for client in ("out", "late", "later"):
        await members.answer(client, yes(), 3)
    await stores.redis.client.hset(offered.keys.evicted, "out", "{}")
    await members.assign_slots(1, {"a": 0, "b": 2, "c": 1}, 3)
    assert await members.slots() == {"b": 2, "c": 1, "late": 0}, "late acceptances get free slots"
    assert (await members.answer("a", yes(), 3))[0] == "full"


async def test_late_acceptance_gets_a_free_slot_or_is_refused_if_all_are_taken(
    offered: RunStores,
) -> None:
    members = offered.members
    await members.answer("a", yes(), SLOTS)
    await members.assign_slots(1, {"a": 1}, SLOTS)
    assert await members.answer("late", yes(3), SLOTS) == ("recorded", "3")
    assert await members.answer("later", yes(3), SLOTS) == ("recorded", "0")
    assert await members.answer("last", yes(), SLOTS) == ("recorded", "2")
    assert (await members.answer("more", yes(), SLOTS))[0] == "full"
    assert await members.answer("not", NO, SLOTS) == ("recorded", "")
    assert await members.slots() == {"a": 1, "last": 2, "late": 3, "later": 0}
    assert (await offered.events.read("0-0", 0.001))[-2].type == "joined"


async def test_slot_of_an_evicted_client_is_given_only_on_explicit_request(
    offered: RunStores, stores: Stores
) -> None:
    members = offered.members
    await stores.join_tokens.add({"j": JoinTokenRecord(NOW + 60)}, BY)
    await stores.clients.join("j", "h", "a", "", NOW, NOW + 600)
    await members.answer("a", yes(), 1)
    await members.assign_slots(1, {"a": 0}, 1)
    assert (await members.answer("again", yes(0), 1))[0] == "full"
    assert await offered.evictions.evict("a", BY) == ("evicted", "")
    assert (await members.answer("a", yes(0), 1))[0] == "evicted"
    assert (await members.answer("other", yes(), 1))[0] == "full"
    assert await members.answer("again", yes(0), 1) == ("recorded", "0")
    assert (await members.answer("third", yes(0), 1))[0] == "full"


async def test_barred_clients_do_not_count_as_acceptances(
    offered: RunStores, stores: Stores
) -> None:
    for name in ("a", "b", "c"):
        await stores.join_tokens.add({name: JoinTokenRecord(NOW + 60)}, BY)
        await stores.clients.join(name, name, name, "", NOW, NOW + 600)
        await offered.members.answer(name, yes(), SLOTS)
    await offered.evictions.evict("a", BY)
    await stores.clients.bar("b", BY)
    assert await offered.members.acceptances() == {"c": None}
    assert (await offered.members.answer("b", yes(), SLOTS))[0] == "evicted"


async def test_ended_run_accepts_no_new_members(offered: RunStores) -> None:
    await offered.state.end(1, NOW)
    assert (await offered.members.answer("a", yes(), SLOTS))[0] == "over"


async def test_repeated_answers_are_recorded_once(offered: RunStores) -> None:
    answers = [
        *[AnswerRecord(accept=True, at=at) for at in (1.0, 2.0)],
        *[AnswerRecord(accept=True, at=at, slot=1) for at in (3.0, 4.0)],
        *[AnswerRecord(accept=False, at=at, reason="no time") for at in (5.0, 6.0)],
    ]
    before = len(await offered.events.read("0-0", 0.001))
    for answer in answers:
        assert await offered.members.answer("a", answer, 2) == ("recorded", "")
    events = (await offered.events.read("0-0", 0.001))[before:]
    assert [event.type for event in events] == ["accepted", "accepted", "declined"]
    assert (await offered.members.answers())["a"] == answers[4]
