"""Sends small models whole and large models in pieces.

A large model is sent in pieces so that it is never entirely in memory, even if the client reads
slowly.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import BinaryIO

from fastapi import Response
from fastapi.responses import StreamingResponse

from rampart_fl.services.aggregator.api.run_parts import RunParts
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.shared.protocol import refusals, wire

PIECE = 1 << 20
"""Number of bytes in each piece of a large model."""


async def model_response(
    runtime: Runtime, held: RunParts, digest: str, headers: Mapping[str, str]
) -> Response:
    """The response that carries one of the run's models.

    Raises:
        NotFound: the model does not exist, or was deleted.
    """
    run = partial(asyncio.get_running_loop().run_in_executor, runtime.disk)
    try:
        whole = await held.models.read(digest)
        if whole is not None:
            runtime.metrics.bytes_out.inc(len(whole))
            return Response(whole, media_type=wire.MEDIA_TYPE, headers=dict(headers))
        file, size = await run(open_model, held.blobs, digest)
    except FileNotFoundError:
        raise refusals.NotFound(f"no model {digest}") from None
    runtime.metrics.bytes_out.inc(size)

    async def send() -> AsyncIterator[bytes]:
        with file:
            piece = await run(file.read, PIECE)
            while piece:
                following = run(file.read, PIECE)
                yield piece
                piece = await following

    length = {"Content-Length": str(size)}
    return StreamingResponse(send(), media_type=wire.MEDIA_TYPE, headers={**headers, **length})


def open_model(blobs: Blobs, digest: str) -> tuple[BinaryIO, int]:
    """Opens a model's file; returns the open file and its size in bytes."""
    file = blobs.open(digest)
    size = file.seek(0, 2)
    file.seek(0)
    return file, size
