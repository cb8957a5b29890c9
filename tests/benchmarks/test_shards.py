"""The benchmark of a pool divided among processes, at a small size and on one process."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import shards
from benchmarks.stream import spec_of, store_vector
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.shared.runtime import disk_block

DIM, CLIENTS = 5000, 3


def test_pool_above_the_memory_limit_is_on_disk_and_gives_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []

    class NotedFile(disk_block.MappedFile):
        def __init__(self, rows: int, dim: int, folder: Path) -> None:
            super().__init__(rows, dim, folder)
            files.append((rows, dim))

    monkeypatch.setattr(disk_block, "MappedFile", NotedFile)
    monkeypatch.setattr(shards, "set_up_torch", lambda settings: None)  # It changes the process.
    blobs = Blobs(tmp_path / shards.RUN)
    uploads = [store_vector(blobs, spec_of(DIM), seed) for seed in range(CLIENTS)]
    (tmp_path / "uploads.json").write_text(json.dumps(uploads))
    models = []
    for memory in (None, 1000):
        assert not files
        given = Namespace(folder=tmp_path, cell="median", parameters=DIM, threads=1, memory=memory)
        shards.cell(given)
        models.append(json.loads(capsys.readouterr().out)["model"])
    assert files == [(CLIENTS, DIM)]
    assert models[0] == models[1]
