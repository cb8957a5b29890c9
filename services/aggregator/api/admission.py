"""Admission: an upload's bytes become a checked, durable blob, or a refusal, and nothing else.

The body is counted while it streams, written and hashed on threads, and held against the model's
spec; nothing is decompressed beyond the size that the model can need.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import zstandard

from rampart_fl.services.aggregator.state.blobs import Blobs, BlobWriter
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Report
from rampart_fl.shared.protocol.refusals import (
    LengthRequired,
    Malformed,
    SlowBody,
    TooLarge,
    UnsupportedMedia,
)

PIECE = 1 << 18
"""Bytes handed to the disk at once."""
ZSTD_WINDOW = 1 << 23
"""Bytes that a decoder keeps: what RFC 9659 allows for this content encoding."""


@dataclass(frozen=True)
class Limits:
    """Bounds on one body."""

    size: int
    idle: float
    rate: float


def check_length(length: str | None, size_cap: int) -> int:
    """The declared length of a body, refused before a byte of it is read.

    Raises:
        LengthRequired, Malformed, TooLarge.
    """
    if length is None:
        raise LengthRequired("uploads need a Content-Length")
    if not length.isascii() or not length.isdigit() or len(length) > 19:
        raise Malformed(f"Content-Length {length[:40]!r} is not a number")
    if int(length) > size_cap:
        raise TooLarge(f"{int(length)} bytes; at most {size_cap} are read")
    return int(length)


def check_encoding(encoding: str | None) -> bool:
    """Whether the body is zstd; `UnsupportedMedia` for any other encoding but identity."""
    name = (encoding or "identity").strip().lower()
    if name not in {"identity", "zstd"}:
        raise UnsupportedMedia(f"content encoding {name[:40]!r}; known: identity, zstd")
    return name == "zstd"


@dataclass(frozen=True)
class Admitted:
    """Bytes that came in whole: their digest and size, and the report if they were let in."""

    digest: str
    size: int
    report: Report | None


Judge = Callable[[BlobWriter], Report | None]


class Admission:
    """Turns bodies into blobs.

    Args:
        blobs: where they are kept.
        disk: threads for everything that touches the disk.
    """

    def __init__(self, blobs: Blobs, disk: Executor) -> None:
        self._blobs = blobs
        self._disk = disk

    async def admit(
        self, body: AsyncIterator[bytes], length: int, zstd: bool, limits: Limits, judge: Judge
    ) -> Admitted:
        """Streams a body into a file, has it judged, and makes it a durable blob.

        Whatever is refused leaves nothing behind.

        Args:
            judge: reads the whole file on a thread; its report lets the bytes in, None drops them.
        Raises:
            SlowBody: it stood still, or came below the least rate.
            TooLarge: more bytes than declared or than fit.
            Malformed: fewer bytes than declared, or not zstd.
            Refusal: from `judge`.
        """
        run = asyncio.get_running_loop().run_in_executor
        upload = _Upload(self._blobs)
        try:
            last = await self._stream(body, length, limits, upload)
            return await asyncio.shield(
                run(self._disk, upload.finish, last, zstd, limits.size, judge)
            )
        finally:
            if upload.pending is not None and not upload.pending.done():
                await asyncio.wait([upload.pending])
            if upload.writer is not None:
                upload.writer.discard()

    async def _stream(
        self, body: AsyncIterator[bytes], length: int, limits: Limits, upload: "_Upload"
    ) -> bytearray:
        """Writes a body in pieces on the disk's threads; the last piece is left to the caller."""
        loop = asyncio.get_running_loop()
        last_moment = loop.time() + limits.idle + length / limits.rate
        buffer, received = bytearray(), 0
        try:
            async with asyncio.timeout(limits.idle) as limit:
                async for chunk in body:
                    received += len(chunk)
                    if received > length:
                        raise TooLarge(f"more bytes came than the {length} declared")
                    buffer += chunk
                    if len(buffer) >= PIECE:
                        limit.reschedule(None)  # The disk's time is not the client's.
                        if upload.pending is not None:
                            await upload.pending
                        upload.pending = loop.run_in_executor(self._disk, upload.write, buffer)
                        buffer = bytearray()
                    limit.reschedule(min(loop.time() + limits.idle, last_moment))
        except TimeoutError:
            raise SlowBody(f"{received} of {length} bytes came in time") from None
        if upload.pending is not None:
            await upload.pending
        if received < length:
            raise Malformed(f"the body ended after {received} of {length} bytes")
        return buffer


class _Upload:
    """The file of one body, opened with its first piece."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.writer: BlobWriter | None = None
        self.pending: asyncio.Future[None] | None = None

    def write(self, piece: bytearray) -> None:
        if self.writer is None:
            self.writer = self._blobs.writer()
        self.writer.write(piece)

    def finish(self, last: bytearray, zstd: bool, size_cap: int, judge: Judge) -> Admitted:
        """The rest of the work in one go: last piece, decompression, judgement, commit."""
        self.write(last)
        assert self.writer is not None
        if not zstd:
            return _settle(self.writer, judge)
        with self._blobs.writer() as unpacked:
            _unpack(self.writer, unpacked, size_cap)
            return _settle(unpacked, judge)


def _settle(writer: BlobWriter, judge: Judge) -> Admitted:
    report = judge(writer)
    if report is not None:
        writer.commit()
    return Admitted(writer.digest, writer.size, report)


def check_update(writer: BlobWriter, spec: ModelSpec, sample_cap: int) -> Report:
    """Holds written bytes against the model, and their claims against the bounds.

    Raises:
        Malformed, InvalidUpdate, InvalidClaim, NotFinite.
    """
    with writer.reader() as file:
        head = wire.read_header(file, writer.size, spec)
        report = wire.read_report(head, sample_cap)
        wire.check_finite(file, head)
    return report


def _unpack(packed: BlobWriter, writer: BlobWriter, size_cap: int) -> None:
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    try:
        with packed.reader() as file, decompressor.stream_reader(file) as stream:
            while piece := stream.read(PIECE):
                if writer.size + len(piece) > size_cap:
                    raise TooLarge(f"decompresses to more than the {size_cap} bytes that may be")
                writer.write(piece)
    except zstandard.ZstdError as error:
        raise Malformed(f"not zstd: {error}") from None
