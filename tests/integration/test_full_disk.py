"""If the disk is full for a while, refusals are clear, no process ends, and the run continues."""

import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.blobs import BlobWriter
from rampart_fl.shared.protocol import wire
from tests.integration.in_process_federation import (
    Disk,
    Hold,
    Hosted,
    experiment,
    until,
    upload_of,
)

NAMES = ["ada", "bob", "cleo"]
Host = Callable[..., Hosted]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk of the aggregator: it has room until a test fills it."""
    disk = Disk()
    monkeypatch.setattr(shutil, "disk_usage", disk.usage)
    return disk


def waits(hosted: Hosted) -> list[tuple[str, str]]:
    """Every start and end of a wait among the run's events, with the reason."""
    events = hosted.of_run(lambda run: run.events.read("0-0", 0.001))
    named = [event for event in events if event.type in {"waiting", "continued"}]
    return [(event.type, event.fields.get("reason", "")) for event in named]


def put(hosted: Hosted, name: str, update: bytes) -> httpx.Response:
    """An upload for the first round."""
    headers = {
        "Authorization": f"Bearer {hosted.join(name).token}",
        "Content-Type": wire.MEDIA_TYPE,
    }
    url = f"{hosted.url}/v1/runs/{hosted.run.id}/rounds/0/update"
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
    until(lambda: "waiting for blobs: No space left on device" in caplog.text)
    assert "waiting for Redis" not in caplog.text
    assert hosted.run.status().phase == "aggregating"
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


def test_a_round_waits_for_disk_space_and_operators_see_why(
    host: Host, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hosted = host(experiment(3, rounds=2))
    operator, run, disk.free = hosted.operator, hosted.run, 100
    hosted.scripted(NAMES)
    until(lambda: run.status().waits_for.startswith("disk: a round of 3 clients needs "))
    reason = run.status().waits_for
    assert reason.endswith(" (3 updates, 1 models), but only 100 B of disk space is free")
    assert run.info().waits_for == operator.runs()[0].waits_for == reason
    assert (run.info().state, run.status().phase) == ("running", "joining")
    assert "rampart_waiting_for_disk 1.0" in operator.request("GET", "/metrics").text
    disk.free = 200
    until(lambda: run.status().waits_for.endswith(" only 200 B of disk space is free"))
    disk.await_checks()
    assert run.status().received == []

    disk.free = 2**40
    hosted.wait()
    assert [record.participants for record in run.rounds()] == [NAMES, NAMES]
    assert (run.status().waits_for, run.info().waits_for) == ("", "")
    assert "rampart_waiting_for_disk 0.0" in operator.request("GET", "/metrics").text
    assert waits(hosted) == [("waiting", reason), ("continued", "")]
    lines = [r.getMessage() for r in caplog.records if "waiting for" in r.getMessage()]
    assert lines == [f"waiting for {reason}", "no longer waiting for disk"]


@pytest.mark.parametrize("policy", ["sync", "buffered"])
def test_a_run_that_waits_for_disk_space_survives_a_restart(
    host: Host, disk: Disk, policy: str
) -> None:
    """The next worker continues to wait; it neither reports the wait again nor forgets it."""
    hosted, hold = host(experiment(3, rounds=2, policy=policy)), Hold(0)
    hosted.scripted(NAMES, hold=hold)
    hosted.wait("collecting", 0)
    disk.free, hold.on = 0, False
    until(lambda: hosted.run.status().waits_for)
    assert (hosted.run.status().phase, hosted.run.status().round) == ("published", 0)
    hosted.restart()
    disk.await_checks()
    assert hosted.run.status().waits_for.startswith("disk: a round of 3 clients needs ")
    assert [kind for kind, _ in waits(hosted)] == ["waiting"]
    disk.free = 2**40
    hosted.wait()
    assert len(hosted.run.rounds()) == 2
    assert [kind for kind, _ in waits(hosted)] == ["waiting", "continued"]


def test_a_run_that_waits_for_disk_space_can_be_paused_and_stopped(host: Host, disk: Disk) -> None:
    hosted, hold = host(experiment(3, rounds=2)), Hold(0)
    run = hosted.run
    hosted.scripted(NAMES, hold=hold)
    hosted.wait("collecting", 0)
    disk.free, hold.on = 0, False
    until(lambda: run.status().waits_for)
    run.steer("pause")
    until(lambda: not run.status().waits_for)
    assert run.status().phase == "published"
    run.steer("resume")
    until(lambda: run.status().waits_for)
    run.steer("stop")
    hosted.wait()
    assert (run.info().state, run.status().waits_for) == ("finished", "")
    assert [kind for kind, _ in waits(hosted)] == ["waiting", "continued"] * 2
    assert hosted.last_ticket("ada").kind == "done"


def test_a_run_that_was_stopped_without_a_worker_no_longer_waits(host: Host, disk: Disk) -> None:
    hosted, hold = host(experiment(3, rounds=2)), Hold(0)
    hosted.scripted(NAMES, hold=hold)
    hosted.wait("collecting", 0)
    disk.free, hold.on = 0, False
    until(lambda: hosted.run.status().waits_for)
    hosted.stop()
    by = Attribution("owner", "a test", 0.0)
    hosted.of_run(lambda run: run.state.set_status("stopping", by))
    hosted.resume()
    hosted.wait()
    assert hosted.run.status().waits_for == ""
    assert [kind for kind, _ in waits(hosted)] == ["waiting", "continued"]


def test_a_run_that_was_paused_without_a_worker_no_longer_waits(host: Host, disk: Disk) -> None:
    hosted, hold = host(experiment(3, rounds=2)), Hold(0)
    run = hosted.run
    hosted.scripted(NAMES, hold=hold)
    hosted.wait("collecting", 0)
    disk.free, hold.on = 0, False
    until(lambda: run.status().waits_for)
    hosted.stop()
    by = Attribution("owner", "a test", 0.0)
    hosted.of_run(lambda stores: stores.state.set_status("paused", by))
    hosted.resume()
    assert run.status().waits_for == ""
    assert [kind for kind, _ in waits(hosted)] == ["waiting", "continued"]
    disk.free = 2**40
    run.steer("resume")
    hosted.wait()
    assert len(run.rounds()) == 2


def test_only_the_clients_of_a_round_need_disk_space(host: Host, disk: Disk) -> None:
    hosted = host(experiment(3, rounds=1, fraction=0.3))
    disk.free = 0
    hosted.scripted(NAMES)
    until(lambda: hosted.run.status().waits_for.startswith("disk: "))
    assert hosted.run.status().waits_for.startswith("disk: a round of 1 clients needs ")
    disk.free = 2**40
    hosted.wait()


def test_a_run_that_waits_too_long_for_disk_space_is_cancelled(host: Host, disk: Disk) -> None:
    hosted = host(experiment(1, rounds=1))
    hosted.run.steer("stop")
    until(lambda: hosted.run.info().state == "cancelled")
    disk.free = 0
    info = hosted.operator.submit(experiment(1, rounds=1, seed=2), wait_seconds=2)
    hosted.run = hosted.operator.run(info.run)
    hosted.run.await_start()
    hosted.scripted(["ada"])
    until(lambda: hosted.run.info().state == "cancelled")
    assert hosted.run.info().reason.startswith("the run waited 2 seconds for disk: a round of 1 ")
