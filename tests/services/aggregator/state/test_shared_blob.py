"""Blobs that several processes write together; here, one process opens the file twice."""

import hashlib
from pathlib import Path

import pytest

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.shared_blob import SharedBlob
from rampart_fl.shared.errors import Unavailable
from tests.services.aggregator.state.test_blobs import full_disk

DATA = bytes(range(200))


def test_bytes_written_in_any_order_are_one_blob(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    with (
        SharedBlob.created(blobs, len(DATA)) as path,
        SharedBlob(blobs, path) as one,
        SharedBlob(blobs, path) as other,
    ):
        other.write_at(150, DATA[150:])
        one.write_at(0, DATA[:100])
        other.write_at(100, memoryview(DATA)[100:150])
        digest = one.digest()
        assert digest == hashlib.sha256(DATA).hexdigest()
        assert not blobs.exists(digest)
        one.commit(digest)
    with blobs.open(digest) as file:
        assert file.read() == DATA
    assert list(blobs.unfinished.iterdir()) == []


def test_file_that_was_not_committed_is_deleted(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    with pytest.raises(KeyError), SharedBlob.created(blobs, 10) as path:
        assert path.stat().st_size == 10
        raise KeyError
    assert list(blobs.unfinished.iterdir()) == list(blobs.digests()) == []


def test_full_disk_raises_unavailable(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    with full_disk(), pytest.raises(Unavailable, match="File too large"):
        SharedBlob.created(blobs, 10).__enter__()
    with (
        SharedBlob.created(blobs, 10) as path,
        SharedBlob(blobs, path) as file,
        full_disk(),
        pytest.raises(Unavailable, match="File too large"),
    ):
        file.write_at(2, bytes(8))
    assert list(blobs.unfinished.iterdir()) == []
