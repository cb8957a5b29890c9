"""The worker's round engine: cases that cannot run over the network, and other devices.

Legend: D coordinates.
"""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine, check_networked
from rampart_fl.services.aggregator.worker.vectors import Vectors
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt
from tests.pretended import DEVICE, PretendedDevice

CLIENTS = [f"client-{i}" for i in range(7)]


def test_a_method_whose_clients_see_each_others_models_is_refused() -> None:
    tables = {"name": "exact", "data": {"dataset": "digits"}, "model": "logistic"}
    shared, exact = (
        Experiment.from_tables({**tables, "personalizer": {"name": "interpolated", "mode": mode}})
        for mode in ("shared", "exact")
    )
    assert check_networked(shared) is shared
    with pytest.raises(ConfigurationError, match="simulation only"):
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


def models(experiment: Experiment, folder: Path, device: torch.device) -> dict[str, Tensor]:
    """Every model that two rounds and a probe store, where one upload is far too large."""
    blobs = Blobs(folder)
    spec, first = RoundEngine.first_model(experiment, blobs)
    round_engine, made = RoundEngine(experiment, spec, blobs, device), {}
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
