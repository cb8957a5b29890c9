"""Founding, steering and finishing, in a real Redis."""

from functools import partial
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
BY = Attribution("ada", "a test", NOW)
SPEC = ModelSpec.of([("weight", (2, 3))])
SNAPSHOT = Snapshot(global_model="d" * 64, reference="e" * 64, pulls=("a",))


async def test_a_federation_is_founded_once(stores: Stores, experiment: Experiment) -> None:
    fence, digest = await stores.lease.acquire("worker", 60, NOW), experiment.digest()
    assert fence is not None
    found = partial(stores.run.found, fence)
    answer = await found(experiment, SPEC, SNAPSHOT, NOW, NOW + 60)
    assert answer == ("founded", digest)
    federation = await stores.run.read()
    assert federation is not None
    assert (federation.digest, federation.phase, federation.schema) == (digest, "joining", "2")
    assert (federation.status, federation.round, federation.deadline) == ("running", 0, NOW + 60)
    assert (federation.experiment, federation.spec) == (experiment, SPEC)
    assert federation.snapshot == SNAPSHOT
    assert await found(experiment, SPEC, SNAPSHOT, NOW) == ("same", digest)
    other = experiment.model_copy(update={"seed": 7})
    assert await found(other, SPEC, SNAPSHOT, NOW) == ("other", digest)
    assert await stores.run.read() == federation


async def test_another_schema_is_refused(founded: Any) -> None:
    stores = founded.stores
    await stores.redis.client.hset(stores.run.keys.federation, "schema", "0")
    with pytest.raises(ConfigurationError, match="schema 0, this version reads 2"):
        await stores.run.read()


async def test_nothing_can_be_steered_before_it_is_founded(stores: Stores) -> None:
    assert await stores.run.set_status("paused", BY) == ("unfounded", "")
    assert await stores.run.brief() is None
    assert await stores.run.read() is None
    assert (await stores.tickets.standing("a")).brief is None
    assert await stores.events.last_position() == "0-0"


async def test_the_status_goes_one_way_once_it_stops(founded: Any) -> None:
    stores = founded.stores
    assert await stores.run.set_status("paused", BY) == ("done", "paused")
    assert await stores.run.set_status("running", BY) == ("done", "running")
    assert await stores.run.set_status("stopping", BY) == ("done", "stopping")
    assert await stores.run.set_status("running", BY) == ("over", "stopping")
    assert await stores.run.set_status("stopping", BY) == ("already", "stopping")


async def test_the_mode_is_the_operator_s_once_it_is_said(founded: Any) -> None:
    stores = founded.stores
    assert (await stores.run.read()).mode is None
    assert await stores.run.set_mode("observe", BY) == ("done", "observe")
    assert (await stores.run.read()).mode == "observe"
    assert (await stores.evictions.barred()).standing.mode == "observe"
    (event,) = await founded.last_events(1)
    assert event == {"type": "mode", "mode": "observe", "reason": "a test"}
    await stores.run.set_status("stopping", BY)
    assert await stores.run.set_mode("evict", BY) == ("over", "stopping")


async def test_no_mode_before_there_is_a_federation(stores: Stores) -> None:
    assert await stores.run.set_mode("observe", BY) == ("unfounded", "")


async def test_finishing_ends_everything(founded: Any) -> None:
    stores = founded.stores
    await founded.open(0, ["a"], kind="evaluate", phase="evaluating", deadline=NOW + 5)
    await stores.run.finish(founded.fence)
    brief = await stores.run.brief()
    assert (brief.phase, brief.status, brief.deadline) == ("done", "finished", None)
    assert await stores.tickets.outstanding() == {}
    assert await stores.run.set_status("running", BY) == ("over", "finished")
