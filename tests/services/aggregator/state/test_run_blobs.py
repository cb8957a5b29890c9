"""The blobs of several runs: each has its own, even if the bytes are the same."""

import time
from pathlib import Path

import pytest

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.run_blobs import OPEN, RunBlobs


@pytest.fixture(params=["folder", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> RunBlobs:
    """Each kind of store; the object store is obstore's in-memory store."""
    place = str(tmp_path / "blobs") if request.param == "folder" else "memory://"
    return RunBlobs(place, tmp_path / "cache")


def test_a_run_does_not_see_the_blobs_of_another(blobs: RunBlobs) -> None:
    first, second = blobs.of_run("x-1"), blobs.of_run("x-2")
    digest = first.put(b"a model")
    assert blobs.of_run("x-1").exists(digest)
    assert not second.exists(digest)
    with pytest.raises(FileNotFoundError):
        second.open(digest)


def test_removing_or_sweeping_a_run_keeps_the_blobs_of_other_runs(blobs: RunBlobs) -> None:
    first, second = blobs.of_run("x-1"), blobs.of_run("x-2")
    digest = first.put(b"a model")
    assert second.put(b"a model") == digest
    blobs.remove("x-1")
    assert not blobs.of_run("x-1").exists(digest)
    with second.open(digest) as file:
        assert file.read() == b"a model"
    first, other = blobs.of_run("x-1"), second.put(b"another")
    first.sweep(set(), time.time())
    assert second.exists(other)


def test_size_is_the_total_over_all_runs(tmp_path: Path) -> None:
    for run in ("x-1", "x-2"):
        (tmp_path / "store" / run).mkdir(parents=True)
    for place in (str(tmp_path / "blobs"), (tmp_path / "store").as_uri()):
        blobs = RunBlobs(place, tmp_path / "cache")
        blobs.of_run("x-1").put(bytes(1000))
        blobs.of_run("x-2").put(bytes(300))
        assert blobs.size() == 1300
        blobs.remove("x-1")
        assert blobs.size() == 300


def test_removing_a_run_twice_is_not_an_error(blobs: RunBlobs) -> None:
    blobs.remove("x-1")
    blobs.remove("x-1")


def test_number_of_open_runs_is_bounded(tmp_path: Path) -> None:
    blobs = RunBlobs(str(tmp_path / "blobs"), tmp_path)
    digests = [blobs.of_run(f"x-{number}").put(b"some") for number in range(3 * OPEN)]
    assert len(blobs._opened) == OPEN
    assert all(blobs.of_run(f"x-{n}").exists(digest) for n, digest in enumerate(digests))


def test_all_runs_share_one_cache_limit(tmp_path: Path) -> None:
    blobs = RunBlobs("memory://", tmp_path / "cache", most=1000)
    for number in range(5):
        blobs.of_run(f"x-{number}").put(bytes([number]) * 300)
    sizes = [path.stat().st_size for path in (tmp_path / "cache").glob("*/??/*")]
    assert sum(sizes) <= 900


def test_blobs_of_a_version_without_runs_are_moved_into_a_run(tmp_path: Path) -> None:
    former = Blobs(tmp_path / "blobs")
    digests = {former.put(bytes([number])) for number in range(20)}
    blobs = RunBlobs(str(tmp_path / "blobs"), tmp_path)
    half = sorted(digests)[:10]
    for digest in half:  # A worker that died has moved some already.
        blobs.of_run("x-1").adopt(former.path(digest), digest)
    blobs.adopt_former("x-1")
    assert set(blobs.of_run("x-1").digests()) == digests
    assert [path.name for path in (tmp_path / "blobs").iterdir()] == ["x-1"]
    blobs.adopt_former("x-1")
    assert set(blobs.of_run("x-1").digests()) == digests
