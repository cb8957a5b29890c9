"""Reading blobs from a disk that fails for a while: the worker waits, and the run goes on."""

import errno
import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.worker.stage_state import load_state, store_state
from rampart_fl.services.aggregator.worker.vectors import Vectors
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.robust.base import State

SPEC = ModelSpec.of([("w", (3,))])
CPU = torch.device("cpu")


class FailingFile(io.BytesIO):
    """A file that can be opened, but not read."""

    def read(self, *_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    def readinto(self, *_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")


class FailingBlobs(Blobs):
    """Blobs on a disk whose files cannot be read."""

    def open(self, digest: str) -> BinaryIO:
        with super().open(digest) as file:
            return FailingFile(file.read())


def test_a_vector_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    digest = Blobs(tmp_path).put(wire.encode(SPEC, np.zeros(3, np.float32), {}))
    with pytest.raises(Unavailable, match="blobs: Input/output error"):
        Vectors(FailingBlobs(tmp_path), SPEC, CPU).read(digest)
    with pytest.raises(FileNotFoundError):
        Vectors(FailingBlobs(tmp_path), SPEC, CPU).read("0" * 64)


def test_a_state_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    digest = store_state(Blobs(tmp_path), State({"a": torch.zeros(2)}))
    with pytest.raises(Unavailable, match="blobs: Input/output error"):
        load_state(FailingBlobs(tmp_path), digest, CPU)


@pytest.mark.anyio
async def test_a_record_that_cannot_be_read_is_unavailable(live_run: Any) -> None:
    await live_run.publish(RoundRecord(round=0, status="published"))
    entry = await live_run.records.entry(0)
    folder = live_run.records.blobs.folder
    object.__setattr__(live_run.records, "blobs", FailingBlobs(folder))
    with pytest.raises(Unavailable, match="blobs: Input/output error"):
        await live_run.records.record_json(entry)
