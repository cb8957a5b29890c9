"""Deletes the blobs that may be unused after a round, except blobs that are still in use."""

import time
from collections.abc import Set as AbstractSet

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.stores import RunStores
from rampart_fl.services.aggregator.worker.disk.blobs_in_use import blobs_in_use
from rampart_fl.shared.runtime.compute import Compute

GRACE = 30.0
"""Maximum number of seconds between the storage of an upload and its acceptance or refusal."""


class UnusedBlobs:
    """Deletes unused blobs of a run.

    Under the policy `buffered`, uploads also arrive between rounds. The bytes of a new upload can
    equal those of an earlier upload that is about to be deleted. Nothing refers to the new upload
    until its receipt is recorded. Blobs that were stored less than `GRACE` seconds ago are
    therefore deleted later.

    Args:
        stores, blobs: the state of the run.
        compute: runs a function on the round engine's thread.
        buffered: whether the round policy is `buffered`.
    """

    def __init__(self, stores: RunStores, blobs: Blobs, compute: Compute, buffered: bool) -> None:
        self._stores = stores
        self._blobs = blobs
        self._compute = compute
        self._buffered = buffered
        self._young = dict[str, float]()
        """Blobs that were too new to be deleted, each with the Unix time at which it was stored."""

    async def delete(
        self, digests: AbstractSet[str], kept: AbstractSet[str], position: str
    ) -> None:
        """Deletes the given blobs, and blobs that were too new for a deletion in earlier calls.

        Args:
            digests: the blobs that may be unused after the round.
            kept: blobs that are not deleted.
            position: a position in the event log; blobs named by later events are not deleted.
        """
        before = time.time() - GRACE if self._buffered else float("inf")
        used = kept | await blobs_in_use(self._stores, position)
        old = {digest for digest, stored_at in self._young.items() if stored_at < before}
        unused = sorted((digests | old) - used)
        young = {digest: at for digest, at in self._young.items() if digest not in old}
        self._young = young | await self._compute(self._blobs.delete, unused, before)
