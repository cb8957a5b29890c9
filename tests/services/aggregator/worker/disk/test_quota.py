"""A run waits for disk space, or is refused, with a message that states the sizes."""

from pathlib import Path

import pytest

from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.worker.disk import quota as quota_module
from rampart_fl.services.aggregator.worker.disk.quota import DiskQuota
from rampart_fl.shared.errors import ConfigurationError

pytestmark = pytest.mark.anyio
KIB = 1024


@pytest.fixture
def blobs(tmp_path: Path) -> RunBlobs:
    """The blobs of one run, which take 6 KiB."""
    blobs = RunBlobs(str(tmp_path / "blobs"), tmp_path / "cache")
    blobs.of_run("x-1").put(bytes(6 * KIB))
    return blobs


async def test_run_of_any_size_fits_without_a_quota(blobs: RunBlobs) -> None:
    quota = DiskQuota(blobs, None)
    quota.check(2**60)
    assert await quota.shortage(2**60) == ""


async def test_run_fits_exactly_up_to_the_quota(
    blobs: RunBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_module, "FRESH", 0.0)
    quota = DiskQuota(blobs, 10 * KIB)
    assert await quota.shortage(4 * KIB) == ""
    assert await quota.shortage(4 * KIB + 1) == (
        "disk: the run needs an estimated 4.0 KiB, and the other runs use 6.0 KiB of "
        "RAMPART_DISK_QUOTA=10.0 KiB; delete runs"
    )
    blobs.remove("x-1")
    assert await quota.shortage(10 * KIB) == ""


async def test_blobs_are_measured_again_after_a_run_has_started(blobs: RunBlobs) -> None:
    quota = DiskQuota(blobs, 10 * KIB)
    assert await quota.shortage(4 * KIB) == ""
    blobs.of_run("x-2").put(bytes(KIB))
    assert (await quota.shortage(4 * KIB)).startswith("disk: ")


def test_a_run_larger_than_the_quota_is_refused(blobs: RunBlobs) -> None:
    quota = DiskQuota(blobs, 10 * KIB)
    quota.check(10 * KIB)
    with pytest.raises(ConfigurationError, match=r"needs an estimated 20.0 KiB of disk"):
        quota.check(20 * KIB)
