"""The disk quota: a run waits until its blobs fit into the space that other runs do not use."""

import asyncio
import time

from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.worker.byte_size import readable
from rampart_fl.shared.errors import ConfigurationError

FRESH = 5.0
"""Seconds between two measurements of the blobs' size while a run waits."""


class DiskQuota:
    """Limits the total size of all runs' blobs.

    Args:
        blobs: the blobs of all runs.
        most: maximum size in bytes; None if there is no limit.
    """

    def __init__(self, blobs: RunBlobs, most: int | None) -> None:
        self._blobs = blobs
        self._most = most
        self._used = 0
        self._measured = -FRESH

    def check(self, needed: int) -> None:
        """Refuses a run that alone needs more disk space than the quota for all runs.

        Args:
            needed: estimated size of the run's blobs in bytes.
        Raises:
            ConfigurationError: the run needs more than the quota.
        """
        if self._most is not None and needed > self._most:
            raise ConfigurationError(
                f"the run needs an estimated {readable(needed)} of disk; RAMPART_DISK_QUOTA is "
                f"{readable(self._most)} for all runs"
            )

    async def shortage(self, needed: int) -> str:
        """Why a run has to wait for disk space; empty if the run's blobs fit into the quota now.

        Args:
            needed: estimated size of the run's blobs in bytes.
        """
        if self._most is None:
            return ""
        if time.monotonic() >= self._measured + FRESH:
            self._used = await asyncio.to_thread(self._blobs.size)
            self._measured = time.monotonic()
        if self._used + needed <= self._most:
            self._measured = -FRESH  # The run will add blobs, so the next call measures again.
            return ""
        return (
            f"disk: the run needs an estimated {readable(needed)}, and the other runs use "
            f"{readable(self._used)} of RAMPART_DISK_QUOTA={readable(self._most)}; delete runs"
        )
