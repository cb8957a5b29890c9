"""Shipped experiments of papers follow their protocols."""

import re

import pytest

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.shipped import SHIPPED


@pytest.mark.parametrize(
    ("name", "dataset", "clients", "drawn", "hostile", "model", "alpha"),
    [
        ("fedcap-cifar10", "cifar10", 20, 1.0, 6, "fedcap_cifar", 10),
        ("fedcap-emnist", "emnist_byclass", 100, 0.2, 30, "fedcap_emnist", 10),
        ("fedcap-wisdm", "wisdm_raw", 36, 1.0, 10, "fedcap_wisdm", 2),
        ("fedcap-wisdm-features", "wisdm", 36, 1.0, 10, "mlp", 2),
    ],
)
def test_shipped_fedcap_experiments_follow_the_papers_protocol(
    name: str, dataset: str, clients: int, drawn: float, hostile: int, model: str, alpha: float
) -> None:
    """FedCAP, section VI-A1, and the scripts published with it."""
    experiment = Experiment.load(name)
    assert (experiment.data.dataset["name"], experiment.data.clients) == (dataset, clients)
    assert experiment.data.test_fraction == 0.25
    assert (experiment.rounds, experiment.fraction, experiment.model["name"]) == (100, drawn, model)
    assert [group.count for group in experiment.attackers] == [hostile]
    training = experiment.training
    assert (training.epochs, training.batch_size, training.learning_rate) == (5, 10, 0.01)
    assert (training.momentum, training.weight_decay) == (0, 0)
    assert experiment.personalizer["name"] == experiment.server.customizer["name"] == "fedcap"
    assert experiment.server.customizer["alpha"] == alpha
    assert experiment.server.detectors == [{"name": "norm_bound", "threshold": 10}]
    assert experiment.server.rule == [{"name": "weighted_mean"}]


def test_shipped_experiments_say_what_colluders_know() -> None:
    """By default, attacks such as LIE know only the colluders' updates; the papers' know all."""
    table = {
        one.name: line
        for one in SHIPPED.glob("*.toml")
        for line in re.findall(r"^attack = .*$", one.read_text(), re.M)
        if re.search(r'"(fang|ipm|jaa|lie|min_max|min_sum)"', line)
    }
    assert len(table) > 10
    assert [name for name, line in table.items() if "knows = " not in line] == []
