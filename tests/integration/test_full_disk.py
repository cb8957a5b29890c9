"""If the disk is full for a while, refusals are clear, no process ends, and the run continues."""

import errno
import os
import tempfile
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from rampart_fl.services.aggregator.state.blobs import BlobWriter
from rampart_fl.shared.protocol import wire
from tests.integration.in_process_federation import Hosted, experiment, until, upload_of

NAMES = ["ada", "bob", "cleo"]


def put(hosted: Hosted, name: str, update: bytes) -> httpx.Response:
    """An upload for the first round."""
    headers = {
        "Authorization": f"Bearer {hosted.join(name).token}",
        "Content-Type": wire.MEDIA_TYPE,
    }
    url = f"{hosted.url}/v1/runs/{hosted.run}/rounds/0/update"
    return httpx.put(url, content=update, headers=headers, timeout=30)


def test_uploads_get_503_and_aggregation_waits_while_the_disk_is_full(
    host: Callable[..., Hosted],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hosted = host(experiment(3, rounds=2))
    for name in NAMES:
        hosted.accept(name)
    hosted.wait("collecting", 0)
    update = upload_of(hosted.model("global"))
    for name in NAMES[:2]:
        assert put(hosted, name, update).status_code == 200
    full, written = True, os.fsync

    def sync(descriptor: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    refused = put(hosted, "cleo", update)
    assert refused.status_code == 503
    assert "No space left on device" in refused.json()["detail"]

    # The disk has room for the last update, but not for the model made of all three.
    commit = BlobWriter.commit

    def model(writer: Any) -> str:
        nonlocal full
        full = True
        return commit(writer)

    monkeypatch.setattr(BlobWriter, "commit", model)
    full = False
    assert put(hosted, "cleo", update).status_code == 200
    until(lambda: "waiting for Redis or blobs: blobs: No space left on device" in caplog.text)
    assert hosted.operator.status().phase == "aggregating"
    monkeypatch.undo()
    hosted.wait("collecting", 1)
    assert hosted.record(0).participants == NAMES


def test_a_process_is_not_ready_while_blobs_cannot_be_written(
    host: Callable[..., Hosted], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = host(experiment(3, rounds=2))
    assert httpx.get(f"{hosted.url}/readyz", timeout=30).status_code == 200

    def write(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", write)
        answer = httpx.get(f"{hosted.url}/readyz", timeout=30)
        assert answer.status_code == 503
        assert answer.json()["detail"] == "blobs: No space left on device"
        assert httpx.get(f"{hosted.url}/healthz", timeout=30).status_code == 200
    assert httpx.get(f"{hosted.url}/readyz", timeout=30).status_code == 200
