"""Admission: turns an upload's bytes into a checked, durable blob, or refuses the upload.

The event loop counts the body's bytes while they arrive. Threads write and hash the bytes, and
check them against the model's spec. Uploads for a model have a maximum size; a compressed body is
refused if it decompresses to more bytes. A small body is not written in pieces: it stays in memory
until all its bytes have arrived. Small bodies that become complete during a write wait until this
write has ended. The next write then makes all of them durable with one fsync.
"""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO, Protocol

import zstandard

from rampart_fl.services.aggregator.state.batcher import RequestBatcher
from rampart_fl.services.aggregator.state.blobs import Blobs, BlobWriter
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import ClientReport
from rampart_fl.shared.protocol.refusals import (
    LengthRequired,
    Malformed,
    SlowBody,
    TooLarge,
    UnsupportedMedia,
)

PIECE = 1 << 18
"""Number of bytes per disk write of a large body."""
SMALL = 2 * PIECE
"""A body with fewer than `SMALL` bytes is small, and is kept in memory as a whole. `SMALL` is two
pieces, because a large body also has two pieces in memory: one that is being written and one that
is arriving."""
ZSTD_WINDOW = 1 << 23
"""Maximum window of a zstd frame in bytes; RFC 9659 sets this limit for HTTP."""


@dataclass(frozen=True)
class Limits:
    """The limits on a body: maximum size, longest pause in seconds, and minimum average rate.

    The size is in bytes, and the rate is in bytes per second.
    """

    size: int
    idle: float
    rate: float


def check_length(length: str | None, size_cap: int) -> int:
    """Parses the Content-Length; refuses a missing, malformed or too large Content-Length.

    Raises:
        LengthRequired, Malformed, TooLarge: the Content-Length is missing, malformed or too large.
    """
    if length is None:
        raise LengthRequired("uploads need a Content-Length")
    if not length.isascii() or not length.isdigit() or len(length) > 19:
        raise Malformed(f"Content-Length {length[:40]!r} is not a number")
    if int(length) > size_cap:
        raise TooLarge(f"the body has {int(length)} bytes; the limit is {size_cap}")
    return int(length)


def check_encoding(encoding: str | None) -> bool:
    """Returns whether the encoding is zstd. Refuses encodings other than zstd and identity."""
    name = (encoding or "identity").strip().lower()
    if name not in {"identity", "zstd"}:
        raise UnsupportedMedia(f"unsupported content encoding {name[:40]!r}; use identity or zstd")
    return name == "zstd"


@dataclass(frozen=True)
class AdmittedUpload:
    """A complete body: its digest, its size, and the client's report if the body was admitted."""

    digest: str
    size: int
    report: ClientReport | None


class Body(Protocol):
    """A complete body that has not been stored as a blob yet."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes."""

    def reader(self) -> BinaryIO:
        """Opens the bytes."""


class SmallBody:
    """A body in memory."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.size = len(data)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes."""
        return hashlib.sha256(self.data).hexdigest()

    def reader(self) -> BinaryIO:
        """Opens the bytes."""
        return io.BytesIO(self.data)


Judge = Callable[[Body], ClientReport | None]


class Admission:
    """Turns the bodies of uploads into blobs.

    Args:
        blobs: the store in which the blobs are kept.
        disk: threads for all work on the disk.
    """

    def __init__(self, blobs: Blobs, disk: Executor) -> None:
        self._blobs = blobs
        self._disk = disk
        self._together = RequestBatcher(self._admit_together)

    async def admit(
        self, body: AsyncIterator[bytes], length: int, zstd: bool, limits: Limits, judge: Judge
    ) -> AdmittedUpload:
        """Reads a body, calls `judge` on it, and stores it as a durable blob.

        If the body is refused, its bytes are removed.

        Args:
            body: the chunks of the body.
            length: number of bytes that the request declared.
            zstd: whether the body is compressed with zstd.
            limits: limits on the body.
            judge: checks the complete body on a thread; returns the report of an admitted upload,
                or None if the bytes are to be discarded.
        Raises:
            SlowBody: the upload paused for too long, or its average rate was too low.
            TooLarge: the body has more bytes than declared, or more than allowed after
                decompression.
            Malformed: the body has fewer bytes than declared, or is not valid zstd.
            Refusal: `judge` refused the body.
        """
        run = asyncio.get_running_loop().run_in_executor
        upload = _Upload(self._blobs)
        try:
            last = await self._stream(body, length, limits, upload)
            if upload.pending is None and not zstd and self._blobs.groups:
                admitted = await self._together.ask((SmallBody(last), judge))
                if isinstance(admitted, Exception):
                    raise admitted
                return admitted
            return await asyncio.shield(
                run(self._disk, upload.finish, last, zstd, limits.size, judge)
            )
        finally:
            if upload.pending is not None and not upload.pending.done():
                await asyncio.wait([upload.pending])
            if upload.writer is not None:
                upload.writer.discard()

    async def _admit_together(
        self, bodies: "Sequence[tuple[SmallBody, Judge]]"
    ) -> "Sequence[AdmittedUpload | Exception]":
        """Checks small bodies, and stores the admitted ones durably with one fsync."""
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._disk, _admit_small, self._blobs, bodies)

    async def _stream(
        self, body: AsyncIterator[bytes], length: int, limits: Limits, upload: "_Upload"
    ) -> bytearray:
        """Writes all pieces of a large body except the last piece; returns the last piece.

        A small body is not split: the whole body is returned.
        """
        loop = asyncio.get_running_loop()
        size = length + 1 if length < SMALL else PIECE
        last_moment = loop.time() + limits.idle + length / limits.rate
        buffer, received = bytearray(), 0
        try:
            async with asyncio.timeout(limits.idle) as limit:
                async for chunk in body:
                    received += len(chunk)
                    if received > length:
                        raise TooLarge(f"more bytes arrived than the declared {length}")
                    buffer += chunk
                    if len(buffer) >= size:
                        limit.reschedule(None)  # The wait for the disk has no time limit.
                        if upload.pending is not None:
                            await upload.pending
                        upload.pending = loop.run_in_executor(self._disk, upload.write, buffer)
                        buffer = bytearray()
                    limit.reschedule(min(loop.time() + limits.idle, last_moment))
        except TimeoutError:
            raise SlowBody(
                f"the upload is too slow: {received} of {length} bytes arrived in time"
            ) from None
        if upload.pending is not None:
            await upload.pending
        if received < length:
            raise Malformed(f"the body ended after {received} of {length} bytes")
        return buffer


class _Upload:
    """The file to which one body is written; the first write creates the file."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.writer: BlobWriter | None = None
        self.pending: asyncio.Future[None] | None = None

    def write(self, piece: bytearray) -> None:
        if self.writer is None:
            self.writer = self._blobs.writer()
        self.writer.write(piece)

    def finish(self, last: bytearray, zstd: bool, size_cap: int, judge: Judge) -> AdmittedUpload:
        """Writes the last piece; decompresses the body, calls `judge`, and commits the blob."""
        self.write(last)
        assert self.writer is not None
        if not zstd:
            return _settle(self.writer, judge)
        with self._blobs.writer() as unpacked:
            _unpack(self.writer, unpacked, size_cap)
            return _settle(unpacked, judge)


def _admit_small(
    blobs: Blobs, bodies: Sequence[tuple[SmallBody, Judge]]
) -> list[AdmittedUpload | Exception]:
    """Checks small bodies, and stores the admitted ones; returns one result per body, in order."""
    outcomes: list[AdmittedUpload | Exception] = []
    kept: dict[str, bytearray] = {}
    for body, judge in bodies:
        try:
            report = judge(body)
        except Exception as error:  # An error in one body must not affect the other bodies.
            outcomes.append(error)
            continue
        if report is not None:
            kept[body.digest] = body.data
        outcomes.append(AdmittedUpload(body.digest, body.size, report))
    if kept:
        blobs.put_all(kept)
    return outcomes


def _settle(writer: BlobWriter, judge: Judge) -> AdmittedUpload:
    report = judge(writer)
    if report is not None:
        writer.commit()
    return AdmittedUpload(writer.digest, writer.size, report)


def check_update(body: Body, spec: ModelSpec, sample_cap: int) -> ClientReport:
    """Checks that the bytes match the model's spec, and that the report is within limits.

    Raises:
        Malformed, InvalidUpdate, InvalidClaim, NotFinite: one of these checks failed.
    """
    with body.reader() as file:
        head = wire.read_header(file, body.size, spec)
        report = wire.read_report(head, sample_cap)
        wire.check_finite(file, head)
    return report


def _unpack(packed: BlobWriter, writer: BlobWriter, size_cap: int) -> None:
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    try:
        with packed.reader() as file, decompressor.stream_reader(file) as stream:
            while piece := stream.read(PIECE):
                if writer.size + len(piece) > size_cap:
                    raise TooLarge(f"the body decompresses to more than {size_cap} bytes")
                writer.write(piece)
    except zstandard.ZstdError as error:
        raise Malformed(f"not zstd: {error}") from None
