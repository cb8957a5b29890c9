"""Housekeeping: what a sweep deletes, and what it must keep."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.worker import housekeeping as module
from rampart_fl.services.aggregator.worker.housekeeping import Housekeeping
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import RoundRecord

pytestmark = pytest.mark.anyio
MIXING = {"a": {"a": 0.75, "b": 0.25}}
NOW = 1_000_000.0
BY = Attribution("ada", "a test", NOW)


@pytest.fixture
def blobs(tmp_path: Path) -> RunBlobs:
    """The blobs of all runs."""
    return RunBlobs(str(tmp_path / "blobs"), tmp_path)


@pytest.fixture
def aged() -> Callable[[Blobs, set[str]], None]:
    """Makes blobs look old enough for a sweep to remove them."""

    def age(blobs: Blobs, digests: set[str]) -> None:
        for name in digests:
            moment = blobs.path(name).stat().st_mtime - module.SWEEP - 60
            os.utime(blobs.path(name), (moment, moment))

    return age


async def test_sweep_keeps_blobs_that_snapshot_tickets_and_receipts_reference(
    live_run: Any, blobs: RunBlobs, aged: Callable[[Blobs, set[str]], None]
) -> None:
    run, held = live_run.run, blobs.of_run(live_run.run.run)
    names = ("global", "reference", "ticket", "update", "started", "answer", "probe", "fresh")
    digest = {name: held.put(name.encode()) for name in names}
    snapshot = Snapshot(global_model=digest["global"], reference=digest["reference"])
    filed = await live_run.records.file(RoundRecord(round=0, status="published", mixing=MIXING))
    position = await run.events.last_position()
    await run.rounds.publish(live_run.fence, filed, {}, snapshot, position)
    ticket = live_run.ticket(1).model_copy(update={"models": {"model": digest["ticket"]}})
    both = {"a": ticket, "b": ticket}
    await run.rounds.open(live_run.fence, 1, "collecting", 0.0, None, both, ["a", "b"])
    receipt = live_run.receipt("a", 1, digest=digest["update"])
    await run.uploads.accept(receipt.model_copy(update={"started": digest["started"]}))

    records = await live_run.records.blob_digests()
    assert len(records) == 2, "the record and its weights"
    aged(held, {*held.digests()} - {digest["fresh"]})
    await Housekeeping(live_run.stores, blobs, live_run.fence).sweep()
    swept = {name for name in names if not held.exists(digest[name])}
    assert swept == {"answer", "probe"}, "what customized models out of turn left behind"
    assert records <= set(held.digests())


async def test_a_sweep_spares_the_new_models_of_a_round_that_is_decided(
    live_run: Any, blobs: RunBlobs, aged: Callable[[Blobs, set[str]], None]
) -> None:
    """Storing the models of a large round may take longer than the age at which blobs are swept."""
    run, held = live_run.run, blobs.of_run(live_run.run.run)
    opened_at, fence = time.time() - module.SWEEP, live_run.fence
    await run.rounds.open(fence, 0, "collecting", opened_at, None, {}, [])
    before, new = held.put(b"before the round"), held.put(b"a new model")
    aged(held, {before, new})
    moment = opened_at - module.SWEEP - 60
    os.utime(held.path(before), (moment, moment))
    await run.rounds.close(fence, 0, await run.events.last_position())
    await Housekeeping(live_run.stores, blobs, fence).sweep()
    assert (held.exists(before), held.exists(new)) == (False, True)


async def test_a_sweep_keeps_the_models_of_the_newest_rounds(
    live_run: Any, blobs: RunBlobs, aged: Callable[[Blobs, set[str]], None]
) -> None:
    run, held = live_run.run, blobs.of_run(live_run.run.run)
    digests = [held.put(b"model %d" % round_) for round_ in range(4)]
    for round_, digest in enumerate(digests):
        record = RoundRecord(round=round_, status="published", models={"global": digest})
        snapshot = Snapshot(global_model=digest, reference=digest)
        position = await run.events.last_position()
        filed = await live_run.records.file(record)
        await run.rounds.open(live_run.fence, round_, "collecting", 0.0, None, {}, [])
        await run.rounds.publish(live_run.fence, filed, {}, snapshot, position)
    aged(held, {*held.digests()})
    for count, kept in ((3, digests[1:]), (1, digests[3:])):
        await Housekeeping(live_run.stores, blobs, live_run.fence, count).sweep()
        assert [digest for digest in digests if held.exists(digest)] == kept


async def test_sweep_covers_ended_runs(
    live_run: Any, blobs: RunBlobs, aged: Callable[[Blobs, set[str]], None]
) -> None:
    held = blobs.of_run(live_run.run.run)
    aged(held, {held.put(b"left behind")})
    await live_run.run.state.end(live_run.fence, NOW)
    await Housekeeping(live_run.stores, blobs, live_run.fence).sweep()
    assert list(held.digests()) == []


@pytest.mark.parametrize("policy", ["buffered"])
async def test_a_sweep_keeps_uploads_that_wait_for_a_worker_after_their_receipts_expired(
    live_run: Any, blobs: RunBlobs, aged: Callable[[Blobs, set[str]], None]
) -> None:
    """For example, while the run is paused for longer than receipts are kept."""
    run, held = live_run.run, blobs.of_run(live_run.run.run)
    await live_run.join("a")
    await live_run.open(0, ["a"])
    upload, started = held.put(b"an upload"), held.put(b"its start")
    receipt = live_run.receipt("a", 0, digest=upload).model_copy(update={"started": started})
    assert (await run.uploads.accept(receipt))[0] == "accepted"
    await live_run.stores.redis.client.delete(run.uploads.keys.receipts(0))
    aged(held, {upload, started, held.put(b"left behind")})
    await Housekeeping(live_run.stores, blobs, live_run.fence).sweep()
    assert set(held.digests()) == {upload, started}


@pytest.mark.parametrize("broken", ["experiment", "record", "disk"])
async def test_a_run_that_cannot_be_read_keeps_its_blobs_and_stops_nothing(
    live_run: Any, blobs: RunBlobs, aged: Callable[[Blobs, set[str]], None], broken: str
) -> None:
    run, held = live_run.run, blobs.of_run(live_run.run.run)
    await live_run.publish(RoundRecord(round=0, status="published"))
    await run.state.end(live_run.fence, NOW)
    if broken == "experiment":
        tables = json.loads(
            await live_run.stores.redis.client.hget(run.uploads.keys.state, "experiment")
        )
        newer = json.dumps({**tables, "key_of_a_newer_release": 1})
        await live_run.stores.redis.client.hset(run.uploads.keys.state, "experiment", newer)
    else:
        path = held.path((await live_run.records.entry(0)).record)
        path.unlink()
        if broken == "record":
            path.write_bytes(b"damaged")
        else:
            path.mkdir()  # Reading a folder is an OSError, as reading from a broken disk is.
    aged(held, {held.put(b"left behind")})
    before = set(held.digests())
    housekeeping = Housekeeping(live_run.stores, blobs, live_run.fence)
    await housekeeping.sweep()
    assert set(held.digests()) == before


async def test_a_worker_that_was_suspended_in_a_sweep_deletes_nothing_that_was_stored_meanwhile(
    live_run: Any, blobs: RunBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker stored a blob an hour ago, after this worker had read which blobs are used."""
    held = blobs.of_run(live_run.run.run)
    stored = held.put(b"the other worker's model")
    moments = iter([time.time()])
    clock = SimpleNamespace(time=lambda: next(moments, time.time() + 3600))
    monkeypatch.setattr(module, "time", clock)
    await Housekeeping(live_run.stores, blobs, live_run.fence).sweep()
    assert held.exists(stored)


async def test_a_run_that_cannot_be_removed_is_tried_again_and_stops_nothing(
    live_run: Any, experiment: Experiment, blobs: RunBlobs
) -> None:
    stores, broken = live_run.stores, live_run.run.run
    await live_run.run.state.end(live_run.fence, NOW)
    other = (await stores.runs.submit(experiment, "second", BY))[0].run
    for run in (broken, other):
        blobs.of_run(run).put(b"left behind")
        assert await stores.runs.delete(run, BY) == "deleted"
    folder, moved = blobs.folder / broken, blobs.folder.parent / "moved"
    folder.rename(moved)
    folder.touch()  # Deleting the blobs in a file is an OSError, as on a broken disk.
    housekeeping = Housekeeping(stores, blobs, live_run.fence)
    assert not await housekeeping.remove_deleted()
    assert await stores.runs.deleted_runs() == [broken]
    assert not (blobs.folder / other).exists()
    folder.unlink()
    moved.rename(folder)
    assert await housekeeping.remove_deleted()
    assert await stores.runs.deleted_runs() == []


async def test_a_run_is_not_removed_while_it_is_swept(
    live_run: Any, blobs: RunBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, held = live_run.run.run, blobs.of_run(live_run.run.run)
    held.put(b"left behind")
    await live_run.run.state.end(live_run.fence, NOW)
    assert await live_run.stores.runs.delete(run, BY) == "deleted"
    housekeeping = Housekeeping(live_run.stores, blobs, live_run.fence)
    with housekeeping.alone(run):
        await housekeeping.remove_deleted()
        assert held.folder.exists()
    await housekeeping.remove_deleted()
    assert not held.folder.exists()
    assert await live_run.stores.runs.deleted_runs() == []
