"""Admission: bodies of every speed and size become blobs or are refused, and leave no files."""

import asyncio
import errno
import hashlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zstandard

from rampart_fl.services.aggregator.api.admission import (
    PIECE,
    SMALL,
    Admission,
    AdmittedUpload,
    Body,
    Limits,
    SmallBody,
    check_encoding,
    check_length,
    check_update,
)
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import ClientReport
from rampart_fl.shared.protocol.refusals import (
    InvalidClaim,
    LengthRequired,
    Malformed,
    NotFinite,
    Refusal,
    SlowBody,
    TooLarge,
    UnsupportedMedia,
)

pytestmark = pytest.mark.anyio
SPEC = ModelSpec.of([("w", (2, 300_000))])
LIMITS = Limits(wire.size_cap(SPEC), idle=5.0, rate=1e9)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path)


@pytest.fixture
def admission(blobs: Blobs) -> Iterator[Admission]:
    with ThreadPoolExecutor(2) as disk:
        yield Admission(blobs, disk)


def update(value: float = 1.0, samples: int = 3) -> bytes:
    vector_D = np.full(SPEC.dim, value, dtype=np.float32)
    return wire.encode(SPEC, vector_D, {"report": f'{{"samples": {samples}}}'})


def judge(body: Body) -> ClientReport:
    return check_update(body, SPEC, 10)


async def pieces(data: bytes, size: int = 100_001) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def empty(blobs: Blobs) -> bool:
    """Whether nothing is left on the disk."""
    return not list(blobs.digests()) and not list((blobs.folder / "tmp").iterdir())


async def admit(admission: Admission, data: bytes, zstd: bool = False) -> AdmittedUpload:
    return await admission.admit(pieces(data), len(data), zstd, LIMITS, judge)


@pytest.mark.parametrize("zstd", [False, True])
async def test_admitted_body_is_stored_uncompressed_as_a_blob(
    admission: Admission, blobs: Blobs, zstd: bool
) -> None:
    data = update()
    assert len(data) > SMALL
    admitted = await admit(admission, zstandard.compress(data) if zstd else data, zstd)
    assert admitted.report == ClientReport(samples=3)
    assert admitted.size == len(data)
    with blobs.open(admitted.digest) as file:
        assert file.read() == data, "what is kept is never compressed"
    assert not list((blobs.folder / "tmp").iterdir())


@pytest.mark.parametrize(
    ("data", "zstd", "refusal"),
    [
        (update(float("nan")), False, NotFinite),
        (update(samples=11), False, InvalidClaim),
        (update(samples=11), True, InvalidClaim),
        (update()[:-1], False, Refusal),
        (b"", False, Malformed),
        (b"not zstd at all", True, Malformed),
    ],
)
async def test_refused_body_leaves_no_file(
    admission: Admission, blobs: Blobs, data: bytes, zstd: bool, refusal: type[Refusal]
) -> None:
    packed = zstandard.compress(data) if zstd and not data.startswith(b"not") else data
    with pytest.raises(refusal):
        await admit(admission, packed, zstd)
    assert empty(blobs)


async def test_body_is_dropped_if_the_judge_returns_no_report(
    admission: Admission, blobs: Blobs
) -> None:
    data = update()
    admitted = await admission.admit(pieces(data), len(data), False, LIMITS, lambda _: None)
    assert admitted.report is None
    assert empty(blobs)


@pytest.mark.parametrize(
    ("declared", "refusal"), [(-1, TooLarge), (1, Malformed)], ids=["shorter", "longer"]
)
async def test_body_that_differs_from_its_declared_length_is_refused(
    admission: Admission, blobs: Blobs, declared: int, refusal: type[Refusal]
) -> None:
    data = update()
    with pytest.raises(refusal):
        await admission.admit(pieces(data), len(data) + declared, False, LIMITS, judge)
    assert empty(blobs)


async def test_decompression_bomb_is_refused_at_the_size_cap(
    admission: Admission, blobs: Blobs
) -> None:
    with pytest.raises(TooLarge, match="decompresses"):
        await admit(admission, zstandard.compress(bytes(100 << 20)), True)
    assert empty(blobs)


async def test_oversized_zstd_window_is_refused(admission: Admission) -> None:
    wide = zstandard.ZstdCompressionParameters(window_log=24, write_content_size=False)
    packer = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    with pytest.raises(Malformed, match="zstd"):
        await admit(admission, packer.compress(update()) + packer.flush(), True)


async def test_stalled_body_is_refused(admission: Admission, blobs: Blobs) -> None:
    async def still() -> AsyncIterator[bytes]:
        yield bytes(2 * PIECE)
        await asyncio.sleep(60)

    limits = Limits(LIMITS.size, idle=0.05, rate=1e9)
    with pytest.raises(SlowBody, match=f"{2 * PIECE} of {3 * PIECE} bytes"):
        await admission.admit(still(), 3 * PIECE, False, limits, judge)
    assert empty(blobs)


async def test_body_below_the_minimum_rate_is_refused(admission: Admission, blobs: Blobs) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    limits = Limits(LIMITS.size, idle=0.05, rate=1e5)
    with pytest.raises(SlowBody):
        await admission.admit(drip(), 5000, False, limits, judge)
    assert empty(blobs)


async def test_broken_connection_leaves_no_file(admission: Admission, blobs: Blobs) -> None:
    async def breaks() -> AsyncIterator[bytes]:
        yield bytes(3 * PIECE)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await admission.admit(breaks(), 4 * PIECE, False, LIMITS, judge)
    assert empty(blobs)


async def test_cancelled_upload_leaves_no_file(admission: Admission, blobs: Blobs) -> None:
    started = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield bytes(PIECE)
        started.set()
        await asyncio.sleep(60)

    upload = asyncio.create_task(admission.admit(endless(), 9 * PIECE, False, LIMITS, judge))
    await started.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    assert empty(blobs)


def test_malformed_missing_or_excessive_content_length_is_refused() -> None:
    assert check_length("17", 17) == 17
    with pytest.raises(LengthRequired):
        check_length(None, 17)
    with pytest.raises(TooLarge):
        check_length("18", 17)
    for wrong in ("", "-1", "1.0", "0x1", " 1", "٣", "9" * 5000, "1, 1"):
        with pytest.raises(Malformed):
            check_length(wrong, 17)


def test_only_identity_and_zstd_content_encodings_are_accepted() -> None:
    assert not check_encoding(None)
    assert not check_encoding(" Identity ")
    assert check_encoding("ZSTD")
    for wrong in ("gzip", "zstd, zstd", "br", "x" * 1000):
        with pytest.raises(UnsupportedMedia):
            check_encoding(wrong)


# -- small bodies ----------------------------------------------------------------------------------

TINY = ModelSpec.of([("w", (10,))])


def tiny(samples: int, value: float = 1.0) -> bytes:
    vector_D = np.full(TINY.dim, value, dtype=np.float32)
    return wire.encode(TINY, vector_D, {"report": f'{{"samples": {samples}}}'})


async def admit_all(
    admission: Admission, bodies: list[bytes]
) -> list[AdmittedUpload | BaseException]:
    """Sends bodies at the same time; returns what became of each."""
    admitting = [
        admission.admit(
            pieces(body), len(body), False, LIMITS, lambda one: check_update(one, TINY, 100)
        )
        for body in bodies
    ]
    return await asyncio.gather(*admitting, return_exceptions=True)


async def test_simultaneous_small_bodies_are_stored_in_few_segments(
    admission: Admission, blobs: Blobs
) -> None:
    bodies = [tiny(samples) for samples in range(1, 60)]
    bodies[3], bodies[50] = tiny(101), tiny(1, float("nan"))
    outcomes = await admit_all(admission, bodies)
    assert isinstance(outcomes.pop(50), NotFinite)
    assert isinstance(outcomes.pop(3), InvalidClaim)
    del bodies[50], bodies[3]
    for body, admitted in zip(bodies, outcomes, strict=True):
        assert isinstance(admitted, AdmittedUpload)
        assert admitted.report == check_update(SmallBody(bytearray(body)), TINY, 100)
        with Blobs(blobs.folder).open(admitted.digest) as file:
            assert file.read() == body
    # The first body does not wait for others; all that arrive meanwhile share a segment.
    assert len(list((blobs.folder / "segments").iterdir())) <= 2


@pytest.mark.parametrize(("length", "small"), [(SMALL - 1, True), (SMALL, False)])
async def test_only_small_bodies_share_segments(
    admission: Admission, blobs: Blobs, length: int, small: bool
) -> None:
    bodies = [os.urandom(length) for _ in range(10)]
    report = ClientReport(samples=1)
    limits = Limits(length, idle=5.0, rate=1e9)
    outcomes = await asyncio.gather(
        *(admission.admit(pieces(body), length, False, limits, lambda _: report) for body in bodies)
    )
    for body, admitted in zip(bodies, outcomes, strict=True):
        assert blobs.path(admitted.digest).exists() is not small
        with Blobs(blobs.folder).open(admitted.digest) as file:
            assert file.read() == body
    segments = list((blobs.folder / "segments").glob("*"))
    assert (1 <= len(segments) <= 5) if small else not segments


async def test_small_body_with_too_few_or_too_many_bytes_is_refused(
    admission: Admission, blobs: Blobs
) -> None:
    data = bytes(SMALL - 1)
    for length in (SMALL - 2, PIECE):
        with pytest.raises(TooLarge):
            await admission.admit(pieces(data), length, False, LIMITS, lambda _: None)
    with pytest.raises(Malformed):
        await admission.admit(pieces(data[:-1]), SMALL - 1, False, LIMITS, lambda _: None)
    assert empty(blobs)


async def test_failed_fsync_refuses_every_body_of_its_batch(
    admission: Admission, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    bodies = [tiny(samples) for samples in range(1, 20)]
    outcomes = await admit_all(admission, bodies)
    assert {type(one) for one in outcomes} == {Unavailable}
    assert empty(blobs)
    monkeypatch.undo()
    outcomes = await admit_all(admission, bodies)
    assert {type(one) for one in outcomes} == {AdmittedUpload}


UPLOADER = """
import asyncio, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from rampart_fl.services.aggregator.state.blobs import Blobs
from tests.services.aggregator.api.test_admission import Admission, AdmittedUpload, admit_all, tiny

async def main() -> None:
    admission, value = Admission(Blobs(Path(sys.argv[1])), ThreadPoolExecutor(2)), 0.0
    while True:
        for admitted in await admit_all(admission, [tiny(1, value + i) for i in range(20)]):
            assert isinstance(admitted, AdmittedUpload), admitted
            print(admitted.digest, flush=True)
        value += 20

asyncio.run(main())
"""


@pytest.mark.processes
@pytest.mark.parametrize("lines", [1, 30, 101])
async def test_admitted_bodies_survive_a_kill(tmp_path: Path, lines: int) -> None:
    uploader = subprocess.Popen(
        [sys.executable, "-c", UPLOADER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert uploader.stdout is not None
    output = [uploader.stdout.readline() for _ in range(lines)]
    uploader.kill()
    output += uploader.stdout.readlines()
    uploader.wait()
    uploader.stdout.close()
    blobs = Blobs(tmp_path)
    digests = [line.strip() for line in output if line.endswith("\n")]
    assert len(digests) >= lines
    for digest in digests:
        with blobs.open(digest) as file:
            assert hashlib.sha256(file.read()).hexdigest() == digest
