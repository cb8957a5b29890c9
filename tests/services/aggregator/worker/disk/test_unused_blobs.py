"""Unused blobs are deleted; those that a client may just have stored again, a little later."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.worker.disk import unused_blobs as module
from rampart_fl.services.aggregator.worker.disk.unused_blobs import UnusedBlobs
from rampart_fl.shared.runtime.compute import compute_on

pytestmark = pytest.mark.anyio
DATA = b"the update of two clients that diverged"
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.mark.parametrize("location", ["folder", "segment", "memory://"])
async def test_under_the_buffered_policy_new_blobs_are_deleted_later(
    live_run: Any, tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = location == "memory://"
    place = location if remote else str(tmp_path / "blobs")
    blobs = RunBlobs(place, tmp_path / "cache").of_run("test-1")

    def store() -> None:
        if location == "segment":
            blobs.put_all({DIGEST: DATA})
        else:
            blobs.put(DATA)

    store()
    unused = UnusedBlobs(live_run.run, blobs, compute_on(None), buffered=True)
    await unused.delete({DIGEST}, set(), "0-0")
    assert blobs.exists(DIGEST), "another client may have stored it, and waits for its receipt"
    monkeypatch.setattr(module, "GRACE", 1.5)
    await asyncio.sleep(1.6)
    store()
    await unused.delete(set(), set(), "0-0")
    assert blobs.exists(DIGEST), "another client has stored it again"
    await asyncio.sleep(1.6 + remote)  # An object store's times are whole seconds.
    await unused.delete(set(), {DIGEST}, "0-0")
    assert blobs.exists(DIGEST), "a receipt names it"
    await unused.delete({DIGEST}, set(), "0-0")
    assert not blobs.exists(DIGEST)


async def test_under_other_policies_blobs_are_deleted_at_once(
    live_run: Any, tmp_path: Path
) -> None:
    """No client can upload while the worker deletes blobs."""
    blobs = RunBlobs(str(tmp_path / "blobs"), tmp_path).of_run("test-1")
    kept, gone = blobs.put(b"kept"), blobs.put(b"gone")
    unused = UnusedBlobs(live_run.run, blobs, compute_on(None), buffered=False)
    await unused.delete({kept, gone}, {kept}, "0-0")
    assert (blobs.exists(kept), blobs.exists(gone)) == (True, False)
