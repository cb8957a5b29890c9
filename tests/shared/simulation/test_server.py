"""FedCAP's flow between rounds in the worked example: two parameters, three clients."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.simulation.clients import Uploads
from rampart_fl.shared.simulation.server import SimulatedServer

NAMES = ("a", "b", "c")
SAMPLES = {"a": 1, "b": 1, "c": 2}


def make_server(**server: object) -> SimulatedServer:
    tables = {
        "rule": "weighted_mean",
        "detectors": [{"name": "norm_bound", "threshold": 0.9}],
        "customizer": {"name": "fedcap", "alpha": 1, "phi": 0.5},
        **server,
    }
    experiment = Experiment.from_tables(
        {"name": "trace", "data": {"dataset": "digits"}, "model": "cnn", "server": tables}
    )
    spec = ModelSpec.of([("w", (2,))])
    return SimulatedServer.of(experiment, torch.zeros(2, dtype=torch.float64), spec)


def close(
    server: SimulatedServer,
    round_: int,
    sent_KD: Tensor,
    updates: Sequence[Sequence[float]],
    names=NAMES,
) -> RoundRecord:
    uploads = Uploads(
        names=tuple(names),
        update_KD=torch.tensor(updates, dtype=torch.float64),
        samples=tuple(SAMPLES.get(name, 1) for name in names),
        metrics={},
    )
    return server.close(round_, sent_KD, uploads, server.origins(names))


def near(tensor: Tensor, values: object) -> bool:
    return torch.allclose(tensor, torch.tensor(values, dtype=torch.float64), rtol=0, atol=2e-6)


def first_round(server: SimulatedServer) -> Tensor:
    """Round 0 of the example (with no eviction), and the models of round 1."""
    sent_KD = server.models(0, NAMES, {})
    assert (sent_KD == 0).all()
    close(server, 0, sent_KD, [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    return server.models(1, NAMES, {})


def test_models_and_norms_match_the_worked_example() -> None:
    server = make_server(detectors=[{"name": "norm_bound", "threshold": 2}])
    models_KD = first_round(server)
    assert near(models_KD, [[0.834881, 0.5], [0.5, 0.834881], [0.75, 0.75]])
    assert near(server.global_D, [0.75, 0.75])
    assert near(server.probed_from, [0.0, 0.0])

    newcomer_D = torch.tensor([2.0, 0.0], dtype=torch.float64)
    assert server.clients_to_probe(["a", "d"]) == ["d"]
    mixed = 0.473041 * torch.tensor([1.0, 0]) + 0.174022 * torch.tensor([0, 1.0]) + 0.352937
    assert near(server.models(1, ["d"], {"d": newcomer_D})[0], mixed.tolist())

    record = close(server, 1, models_KD, [[0.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    assert record.norms == pytest.approx({"a": 0.264017, "b": 0.264017, "c": 1.0}, abs=1e-6)


def test_eviction_matches_the_worked_example() -> None:
    server = make_server(detectors=[])
    models_KD = first_round(server)
    server.rounds = make_server().rounds
    record = close(server, 1, models_KD, [[0.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    assert [v.decision for v in record.verdicts] == ["accepted", "accepted", "evicted"]
    assert server.evicted == {"c"}
    assert near(server.global_D, [0.66744, 0.66744])
    assert set(server.next_models(NAMES)) == {"a", "b"}


def test_global_model_is_kept_if_all_clients_are_evicted() -> None:
    server = make_server()
    close(server, 0, server.models(0, NAMES, {}), [[9.0, 0], [0, 9.0], [9.0, 9.0]])
    assert server.evicted == set(NAMES)
    assert near(server.global_D, [0.0, 0.0])
    assert server.clients_to_probe(["d"]) == []
    assert near(server.models(1, ["d"], {}), [[0.0, 0.0]])


def test_a_single_survivor_gets_its_own_model() -> None:
    server = make_server()
    close(server, 0, server.models(0, NAMES, {}), [[0.3, 0.4], [0, 9.0], [9.0, 9.0]])
    assert near(server.models(1, ["a"], {}), [[0.3, 0.4]])


def test_round_with_too_few_rows_fails_and_keeps_the_global_model() -> None:
    server = make_server(rule="krum", f=1)
    before_D = server.global_D
    record = close(server, 0, server.models(0, NAMES, {}), [[0.1, 0], [0, 0.1], [0.1, 0.1]])
    assert record.status == "failed"
    assert "n=3, f=1" in record.reason
    assert server.global_D is before_D


def test_client_with_a_non_finite_probe_gets_the_global_model() -> None:
    server = make_server(detectors=[])
    first_round(server)
    broken_D = torch.tensor([float("nan"), 0.0], dtype=torch.float64)
    assert near(server.models(1, ["d"], {"d": broken_D})[0], [0.75, 0.75])


def test_sample_counts_are_capped() -> None:
    server = make_server(sample_cap=1, detectors=[])
    close(server, 0, server.models(0, NAMES, {}), [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert near(server.global_D, [2 / 3, 2 / 3])
