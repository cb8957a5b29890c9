"""Ranks share downloads from an object store, and the work of storing models."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.object_blobs import PIECE
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.worker.model_store import ModelStore
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.rounding import ceil_div
from tests.services.aggregator.object_server import ObjectServer, serving
from tests.services.aggregator.worker import rank_blobs_process as process

ROOT = Path(__file__).parents[4]
VECTOR = np.random.default_rng(5).standard_normal(process.LONG.dim).astype(np.float32)
pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """An object server, which this process and its children use for s3:// URLs."""
    with serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def upload(folder: Path, *dtypes: str) -> list[str]:
    """Stores the vector with each dtype in the object store; returns the digests."""
    blobs = RunBlobs(process.LOCATION, folder).of_run(process.RUN)
    return [blobs.put(wire.encode(process.LONG, VECTOR, dtype=dtype)) for dtype in dtypes]


def run(size: int, folder: Path, *digests: str) -> subprocess.CompletedProcess[str]:
    """Runs the ranks, which share one cache."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(size), "-m", process.__name__, str(folder), *digests]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.long)])
def test_ranks_download_each_byte_once_and_store_the_same_models(
    server: ObjectServer, size: int, tmp_path: Path
) -> None:
    digests = upload(tmp_path / "api", "F32", "BF16")
    ended = run(size, tmp_path / "ranks", *digests)
    assert ended.returncode == 0, ended.stderr

    for digest, width in zip(digests, (4, 2), strict=True):
        path = f"/bucket/federation/{process.RUN}/{digest}"
        total = len(server.objects[path])
        sent = sorted((part.start, part.stop) for read, part in server.reads if read == path)
        assert [start for start, _ in sent] == [0, *(stop for _, stop in sent[:-1])]
        assert sent[-1][1] == total
        assert len(sent) == min(size, ceil_div(total, PIECE))
        assert max(stop - start for start, stop in sent) <= total / size + PIECE
        parts = [np.load(tmp_path / "ranks" / f"{digest}.{rank}.npy") for rank in range(size)]
        numbers = wire.narrow(VECTOR, "BF16")
        expected = VECTOR if width == 4 else wire.widen(numbers, "BF16")
        assert np.array_equal(np.concatenate(parts), expected)

    alone = []
    for spec in (process.LONG, process.SHORT):
        store, models = ModelStore(Blobs(tmp_path / "alone"), spec, Ranks()), process.models(spec)
        alone += [*store.put_all(models).values(), store.put(models.models_LD[1])]
    for rank in range(size):
        assert json.loads((tmp_path / "ranks" / f"stored.{rank}.json").read_text()) == alone
    assert {path.rpartition("/")[2] for path in server.objects} == {*digests, *alone}
    unfinished = tmp_path / "ranks" / "cache" / process.RUN / "tmp"
    assert list(unfinished.iterdir()) == []

    server.reads.clear()
    assert run(size, tmp_path / "ranks", *digests).returncode == 0
    assert server.reads == [], "the cache has these blobs"


@pytest.mark.long
def test_ranks_do_not_use_a_damaged_object(server: ObjectServer, tmp_path: Path) -> None:
    (digest,) = upload(tmp_path / "api", "F32")
    path = f"/bucket/federation/{process.RUN}/{digest}"
    server.objects[path] = server.objects[path][:-1] + b"?"
    ended = run(2, tmp_path / "ranks", digest)
    assert ended.returncode != 0
    assert f"blob {digest} is damaged" in ended.stderr
    cache = tmp_path / "ranks" / "cache"
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    assert list((tmp_path / "ranks").glob("*.npy")) == []
