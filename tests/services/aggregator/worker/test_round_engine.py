"""The worker's round engine: cases that cannot run over the network, and other devices.

Legend: D coordinates.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine, check_networked
from rampart_fl.services.aggregator.worker.vectors import Vectors
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt
from rampart_fl.shared.robust import shards, view
from tests.fake_device import DEVICE, PretendedDevice

CLIENTS = [f"client-{i}" for i in range(7)]


def test_simulation_only_personalizer_is_refused_over_the_network() -> None:
    tables = {"name": "exact", "data": {"dataset": "digits"}, "model": "logistic"}
    shared, exact = (
        Experiment.from_tables({**tables, "personalizer": {"name": "interpolated", "mode": mode}})
        for mode in ("shared", "exact")
    )
    assert check_networked(shared) is shared
    with pytest.raises(ConfigurationError, match="simulations only"):
        check_networked(exact)


@pytest.mark.parametrize(
    ("rule", "customizer", "calibrate"),
    [
        (["nnm", "trimmed_mean"], {"name": "fedcap"}, True),
        ("sign_guard", {"name": "fedcap"}, False),
        ("foolsgold", {"name": "fedfomo"}, True),
        ("centered_clipping", {"name": "flcert", "groups": 2}, True),
    ],
)
def test_a_worker_on_another_device_stores_the_same_models(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rule: object,
    customizer: dict[str, object],
    calibrate: bool,
) -> None:
    monkeypatch.setenv("RAMPART_KERNELS", "torch")
    server = {"rule": rule, "f": 1, "customizer": customizer, "calibrate": calibrate}
    server |= {"momentum": 0.5, "detectors": ["norm_bound", "cross_round"]}
    if customizer["name"] == "flcert":
        server["detectors"] = ["norm_bound"]
    tables = {"name": "there", "data": {"dataset": "digits"}, "model": "logistic", "server": server}
    experiment = Experiment.from_tables(tables)
    here = models(experiment, tmp_path / "here", torch.device("cpu"))
    with PretendedDevice():
        there = models(experiment, tmp_path / "there", DEVICE)
    assert here.keys() == there.keys()
    for name, model_D in here.items():
        torch.testing.assert_close(there[name], model_D)


@pytest.mark.parametrize("calibrate", [True, False])
def test_a_pool_on_disk_gives_the_same_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrate: bool
) -> None:
    monkeypatch.setattr(view, "WINDOW", 1)
    monkeypatch.setattr(shards, "GRAIN", 64)
    tables = streamed("median", calibrate)
    held, filed = (
        models(Experiment.from_tables(tables), tmp_path / name, torch.device("cpu"), memory)
        for name, memory in (("memory", None), ("disk", 1000))
    )
    assert held.keys() == filed.keys()
    assert all(torch.equal(model_D, filed[name]) for name, model_D in held.items())


def streamed(rule: str, calibrate: bool = True) -> dict[str, Any]:
    """An experiment with FedCAP's models and the default detectors."""
    server = {"rule": rule, "f": 1, "customizer": "fedcap", "calibrate": calibrate}
    server |= {"detectors": ["response", "challenge"]}
    data = {"dataset": "digits", "clients": 7}
    return {"name": "disk", "data": data, "model": "logistic", "server": server}


def test_stage_that_holds_all_updates_is_refused_if_memory_is_too_small(
    tmp_path: Path,
) -> None:
    experiment, blobs = Experiment.from_tables(streamed("foolsgold")), Blobs(tmp_path)
    spec, _ = RoundEngine.first_model(experiment, blobs)
    assert spec.dim == 650
    RoundEngine(experiment, spec, blobs, torch.device("cpu"), 7 * 650 * 4)
    refused = r"'foolsgold' .* \(keeps the sum of all updates .*\): 7 updates of 650 .*17.8"
    with pytest.raises(ConfigurationError, match=refused):
        RoundEngine(experiment, spec, blobs, torch.device("cpu"), 7 * 650 * 4 - 1)


def test_a_round_that_does_not_fit_on_the_disk_has_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, blobs = Experiment.from_tables(streamed("median")), Blobs(tmp_path)
    spec, _ = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"), 1000)
    # Seven updates, the global model, seven customized and seven challenged models, seven rows.
    free = 4 * 650 * 29
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    assert round_engine.disk_shortage(7) == ""
    free -= 1
    assert round_engine.disk_shortage(7) == (
        f"disk: a round of 7 clients needs 73.6KiB in {tmp_path} (7 updates, 15 models, 7 rows of "
        "the pool), and 73.6KiB are free"
    )


@pytest.mark.parametrize(
    ("server", "models"),
    [
        ({"detectors": ["response", "challenge"]}, 8),
        ({"detectors": [{"name": "response", "challenges": False}]}, 1),
        ({"detectors": []}, 1),
        ({"detectors": [], "customizer": {"name": "flcert", "groups": 2}}, 3),
    ],
)
def test_disk_check_counts_every_model_that_a_round_may_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: dict[str, Any], models: int
) -> None:
    tables = {**streamed("median"), "server": {"rule": "median", **server}}
    experiment, blobs = Experiment.from_tables(tables), Blobs(tmp_path)
    spec, _ = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    assert f"(7 updates, {models} models)" in round_engine.disk_shortage(7)


@pytest.mark.parametrize("calibrate", [True, False])
def test_disk_check_does_not_count_the_file_that_the_next_round_reuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrate: bool
) -> None:
    server = {"rule": "median", "detectors": [], "calibrate": calibrate}
    experiment = Experiment.from_tables({**streamed("median"), "server": server})
    blobs = Blobs(tmp_path)
    spec, first = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"), 1000)
    round_engine.restore(first)
    round_engine.open_round(CLIENTS)
    digest = blobs.put(wire.encode(spec, torch.ones(spec.dim).numpy()))
    receipts = {
        client: Receipt(
            round=0,
            kind="update",
            client=client,
            digest=digest,
            started=first.global_model,
            samples=10,
        )
        for client in CLIENTS
    }
    standing = Standing(len(CLIENTS), len(CLIENTS))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
        assert f", {7 if calibrate else 14} rows of the pool)" in round_engine.disk_shortage(7)
    round_engine.close_round(0, receipts, "0-0", (), standing)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    left = "1 models)" if calibrate else "1 models, 7 rows of the pool)"
    assert left in round_engine.disk_shortage(7)
    # A pool of another size needs another file.
    assert f", {6 if calibrate else 12} rows of the pool)" in round_engine.disk_shortage(6)


def models(
    experiment: Experiment,
    folder: Path,
    device: torch.device,
    pool_memory: int | None = None,
    ranks: Ranks | None = None,
) -> dict[str, Tensor]:
    """Every model that two rounds and a probe store; one upload per round is far too large."""
    blobs = Blobs(folder)
    spec, first = RoundEngine.first_model(experiment, blobs)
    with (ranks or Ranks()).on_all_ranks("begin", folder.name, experiment, spec):
        round_engine = RoundEngine(experiment, spec, blobs, device, pool_memory, ranks)
    made: dict[str, Tensor] = {}
    round_engine.restore(first)
    draws, vectors = torch.Generator().manual_seed(3), Vectors(blobs, spec, torch.device("cpu"))

    def receipt(client: str, round_: int, started: str) -> Receipt:
        update_D = 0.1 * torch.randn(spec.dim, generator=draws) + 0.2
        if client == CLIENTS[-1]:
            update_D *= -100
        return Receipt(
            round=round_,
            kind="update",
            client=client,
            digest=blobs.put(wire.encode(spec, update_D.numpy())),
            started=started,
            samples=10,
        )

    for round_ in range(2):
        round_engine.open_round(CLIENTS)
        assert round_engine.snapshot is not None
        starts = {client: round_engine.snapshot.start(client) for client in CLIENTS}
        receipts = {c: receipt(c, round_, start) for c, start in starts.items()}
        round_engine.load(list(receipts.values())[:4])
        standing = Standing(len(CLIENTS), len(CLIENTS))
        snapshot = round_engine.close_round(round_, receipts, "0-0", (), standing).snapshot
        stored = {"global": snapshot.global_model, **snapshot.customized}
        made |= {f"{name} {round_}": vectors.read(digest) for name, digest in stored.items()}
    round_engine.restore(snapshot)
    round_engine.open_round(CLIENTS)
    if round_engine.probes:
        asked = receipt("newcomer", 2, snapshot.global_model)
        made["newcomer"] = vectors.read(round_engine.customize_newcomer(asked, 2))
    return made
