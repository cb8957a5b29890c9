"""The papers' divisions of the real data; skipped if the files are missing."""

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.experiment.schema import Data, Experiment
from rampart_fl.shared.learning.data.client_data import client_data, partition_data
from rampart_fl.shared.learning.data.datasets import Samples, datasets
from rampart_fl.shared.learning.data.datasets.files import VARIABLE


def real(data: Data) -> tuple[Samples, tuple[Tensor, ...]]:
    """The data set and each client's positions; skips if the file is not in the user's folder."""
    name = str(data.dataset["name"])
    if datasets.build(name).source().kind != VARIABLE:
        pytest.skip(f"{VARIABLE} has no {name}")
    return partition_data(data, seed=1)


@pytest.mark.slow
def test_fedcap_clients_of_cifar10_have_two_classes_and_equal_sizes() -> None:
    data = Experiment.load("fedcap-cifar10").data
    samples, parts = real(data)
    assert len(parts) == 20
    for part in parts:
        assert len(samples.y[part].unique()) == 2
        assert len(part) == 533
    assert len(client_data(data, 3, seed=1).y_train) == 400


@pytest.mark.slow
def test_fedcap_clients_of_emnist_have_a_dominant_kind_of_character() -> None:
    data = Experiment.load("fedcap-emnist").data
    samples, parts = real(data)
    size = data.partition["samples"]
    assert [len(part) for part in parts] == [size] * 100
    kinds = torch.tensor([0] * 10 + [1] * 26 + [2] * 26)  # digits, upper case, lower case
    shares = torch.stack([kinds[samples.y[part]].bincount(minlength=3) for part in parts]) / size
    own = shares.argmax(1)
    assert own.tolist() == sorted(own.tolist())
    assert own.bincount().tolist() == [34, 33, 33]
    # Four fifths, plus the kind's share of the rest, which is drawn from all kinds.
    assert float(shares.amax(1).min()) >= 0.8
    assert float(shares.amax(1).max()) < 0.97


def test_fedcap_clients_of_wisdm_are_single_users() -> None:
    samples, parts = real(Experiment.load("fedcap-wisdm-features").data)
    assert samples.groups is not None
    users = [samples.groups[part].unique().tolist() for part in parts]
    assert sorted(users) == [[user] for user in range(1, 37)]
    assert sum(map(len, parts)) == len(samples.y)


@pytest.mark.parametrize("beta", [0.3, 0.5])
def test_sdea_clients_of_mnist_share_all_samples_with_ten_or_more_each(beta: float) -> None:
    table = {"dataset": "mnist", "clients": 20}
    samples, parts = real(
        Data.model_validate({**table, "partition": {"name": "dirichlet", "beta": beta}})
    )
    assert sum(map(len, parts)) == len(samples.y)
    assert min(map(len, parts)) >= 10
