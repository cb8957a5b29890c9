"""A federation restored from a backup as in docs/operations.md continues to the same result.

A backup copies Redis first, then the blobs, and nothing is deleted in between: it is made between
rounds while the federation is paused, or in mid-round while the worker is stopped. It is restored
into other folders, on other ports, with another password and another operator token.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import chaos
from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.local_federation import LocalFederation
from rampart_fl.services.console.launcher.up import blobs_digest
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.runs import RunStatus
from tests.integration.in_process_federation import QUICK

SMALL = """
name = "backup-test"
seed = 5
rounds = 5

[data]
dataset = "digits"
partition = { name = "classes_per_client", classes = 4 }
clients = 4

[server]
detectors = ["robust_distance"]
customizer = { name = "fedcap", alpha = 10, phi = 0.1 }
"""
ONE_THREAD = {"RAMPART_THREADS": "1"}
CLIENTS = "clients-0"


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return Experiment.parse(SMALL + QUICK)


def follow(federation: LocalFederation, until: Callable[[RunStatus], bool]) -> None:
    """Waits until a federation's status meets a condition."""
    while not until(federation.run.status()):
        federation.processes.check("redis", "aggregator")
        time.sleep(0.02)


def finish(federation: LocalFederation) -> chaos.Run:
    """Waits for a federation's end; returns its result."""
    follow(federation, lambda status: status.phase == "done")
    run = federation.run
    records = [chaos.comparable(record) for record in run.rounds()]
    return chaos.Run(records, run.status().evicted, run.evaluations(), 0.0)


def back_up(source: Path, target: Path) -> None:
    """Copies Redis first, then the blobs; repeats the blobs if some vanish during the copy."""
    shutil.copytree(source / "redis", target / "redis")
    while True:
        try:
            shutil.copytree(source / "blobs", target / "blobs")
        except shutil.Error:
            shutil.rmtree(target / "blobs")
        else:
            return


@dataclass(frozen=True)
class Saved:
    """Two backups of a federation, and the result of its run."""

    paused: Path
    """The backup between rounds, while everything ran."""
    away: Path
    """The backup in mid-round, while the worker was stopped, with the clients' folders."""
    clients: Path
    """The clients' folders at the end."""
    run: chaos.Run


@pytest.fixture(scope="module")
def saved(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("saved")
    paused, away = folder / "paused", folder / "away"
    with LocalFederation(
        experiment, folder / "live", settings=ONE_THREAD, processes=ForkedProcesses
    ) as federation:
        federation.start_clients()
        follow(federation, lambda status: status.round >= 1)
        federation.run.steer("pause")
        follow(federation, lambda status: status.phase == "published")
        back_up(federation.folder, paused)
        opened = federation.run.steer("resume").round

        follow(federation, lambda status: status.round > opened)
        federation.processes.stop("aggregator")
        back_up(federation.folder, away)
        federation.processes.stop(CLIENTS)
        shutil.copytree(federation.folder / "clients", away / "clients")
        federation.start_aggregator()
        federation.clients.restart_group(CLIENTS, None, list(range(experiment.data.clients)))
        run = finish(federation)
    return Saved(paused, away, folder / "live" / "clients", run)


def go_on(folder: Path, experiment: Experiment) -> chaos.Run:
    """Starts a restored federation, and runs it to its end."""
    with LocalFederation(
        experiment, folder, settings=ONE_THREAD, processes=ForkedProcesses
    ) as federation:
        standing = federation.run.status()
        assert standing.clients == experiment.data.clients
        assert 1 <= standing.round < experiment.rounds
        assert standing.phase != "done"
        federation.clients.restart_group(CLIENTS, None, list(range(experiment.data.clients)))
        if standing.status == "paused":
            federation.run.steer("resume")
        return finish(federation)


def digest(run: chaos.Run) -> str:
    """The digest of the final models of a run."""
    return blobs_digest(RoundRecord.model_validate({**run.records[-1], "opened_at": 0}))


def test_backup_does_not_change_the_result(calm: chaos.Run, saved: Saved) -> None:
    assert chaos.difference(calm.outcome(), saved.run.outcome()) is None


def test_restored_federation_reaches_the_undisturbed_result(
    experiment: Experiment, calm: chaos.Run, saved: Saved
) -> None:
    restored = go_on(saved.away, experiment)
    assert chaos.difference(calm.outcome(), restored.outcome()) is None
    assert digest(restored) == digest(calm)


def test_clients_ahead_of_the_restored_backup_take_part_again(
    experiment: Experiment, saved: Saved
) -> None:
    shutil.copytree(saved.clients, saved.paused / "clients")
    restored = go_on(saved.paused, experiment)
    assert [record["status"] for record in restored.records] == ["published"] * experiment.rounds
    assert len(restored.evaluations) == experiment.data.clients
