"""Synthetic means: the configured spread, and the true mean as the only test sample."""

import torch

from rampart_fl.shared.experiment.schema import Data
from rampart_fl.shared.learning.data.client_data import client_data
from rampart_fl.shared.learning.data.datasets import datasets

TABLE = {"name": "synthetic_means", "clients": 6, "samples": 4, "dimension": 3}


def test_spread_between_and_within_clients_matches_the_defaults() -> None:
    table = {"name": "synthetic_means", "clients": 4000, "samples": 20, "dimension": 2}
    samples = datasets.parse(table).load()
    x_NMd = samples.x.view(4000, 21, 2)
    truth_Nd, noise_NMd = x_NMd[:, -1], x_NMd[:, :-1] - x_NMd[:, -1:]
    assert abs(truth_Nd.std() - 2) < 0.05 and abs(noise_NMd.std() - 15) < 0.1
    assert truth_Nd.mean().abs() < 0.1 and noise_NMd.mean().abs() < 0.2


def test_clients_are_tested_only_on_their_true_mean() -> None:
    data = Data(dataset=TABLE, partition="by_group", clients=6)
    samples = datasets.parse(TABLE).draw(5)
    assert samples is not None
    truths = samples.x.view(6, 5, 3)[:, -1]
    owned = []
    for slot in range(6):
        own = client_data(data, slot, seed=5)
        assert own.x_train.shape == (4, 3) and own.x_test.shape == (1, 3)
        client = int(own.y_test)
        assert torch.equal(own.x_test[0], truths[client])
        assert own.y_train.tolist() == [client] * 4
        owned.append(client)
    assert sorted(owned) == list(range(6))


def test_different_seeds_draw_different_means() -> None:
    data = Data(dataset=TABLE, partition="by_group", clients=6)
    one, other, again = (client_data(data, 0, seed).x_test for seed in (1, 2, 1))
    assert torch.equal(one, again) and not torch.equal(one, other)
