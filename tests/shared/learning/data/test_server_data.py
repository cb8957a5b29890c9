"""The server's samples: disjoint from the clients', in their shape, with valid labels or none."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Data
from rampart_fl.shared.learning.data.client_data import client_data, partition_data
from rampart_fl.shared.learning.data.datasets.files import VARIABLE
from rampart_fl.shared.learning.data.server_data import convert_shape, require_fit, server_data

TABLE = Data(dataset="digits", clients=5, samples=40, reserved=100)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    draws = np.random.default_rng(1)
    for name, shape in {"usps": (16, 16), "mnist": (28, 28), "cifar10": (32, 32, 3)}.items():
        arrays = {}
        for part, n in (("train", 20), ("test", 10)):
            arrays[f"x_{part}"] = draws.integers(0, 256, (n, *shape), dtype=np.uint8)
            arrays[f"y_{part}"] = np.arange(n, dtype=np.uint8) % 10
        np.savez(tmp_path / f"{name}.npz", **arrays)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def test_server_and_clients_share_no_samples() -> None:
    # All images of the digits are distinct, so equal images are the same sample.
    held = server_data("digits", 100, TABLE, seed=1, role="root", labels=True)
    clients = [client_data(TABLE, slot, seed=1) for slot in range(5)]
    everyone = torch.cat([held.x, *(torch.cat([own.x_train, own.x_test]) for own in clients)])
    assert len(everyone) == 100 + 5 * 40
    assert len(everyone.flatten(1).unique(dim=0)) == 300
    samples, _ = partition_data(TABLE, 1)
    for x, y in zip(held.x, held.y, strict=True):
        (at,) = (samples.x == x).flatten(1).all(1).nonzero().flatten().tolist()
        assert samples.y[at] == y


def test_samples_depend_on_the_seed_and_the_role() -> None:
    one, again = (server_data("digits", 20, TABLE, 1).x for _ in range(2))
    assert torch.equal(one, again)
    assert not torch.equal(one, server_data("digits", 20, TABLE, 2).x)
    assert not torch.equal(one, server_data("digits", 20, TABLE, 1, role="root").x)


def test_roles_do_not_share_samples() -> None:
    table = Data(dataset="digits", clients=5, reserved=100)
    root = server_data("digits", 60, table, 1, "root", labels=True)
    test = server_data("digits", 40, table, 1, "test", True, root.positions)
    assert not set(root.positions.tolist()) & set(test.positions.tolist())
    with pytest.raises(ConfigurationError, match="needs 41 samples of digits, but only 40 are"):
        server_data("digits", 41, table, 1, "test", True, root.positions)


def test_too_few_or_too_many_reserved_samples_are_rejected() -> None:
    everything = Data(dataset="digits", clients=5)
    with pytest.raises(ConfigurationError, match=r"0 are free.*set data.reserved to 10"):
        server_data("digits", 10, everything, 1)
    with pytest.raises(ConfigurationError, match="1797 of 1797 samples are reserved"):
        partition_data(Data(dataset="digits", clients=5, reserved=1797), 1)


def test_samples_of_another_data_set_get_the_clients_shape(folder: Path) -> None:
    table = Data(dataset="mnist", clients=2)
    held = server_data("usps", 25, table, 1, "root", labels=True)
    assert held.x.shape == (25, 1, 28, 28)
    assert held.labelled
    assert held.y.shape == (25,)
    assert server_data("cifar10", 30, table, 1).x.shape == (30, 1, 28, 28)
    assert server_data("usps", 30, Data(dataset="cifar10"), 1).x.shape == (30, 3, 32, 32)
    with pytest.raises(ConfigurationError, match="31 samples of usps, but only 30 are free"):
        server_data("usps", 31, table, 1)


def test_noise_has_the_clients_shape_and_no_labels() -> None:
    held = server_data("noise", 500, TABLE, 1)
    assert held.x.shape == (500, 1, 8, 8)
    assert not held.labelled
    assert float(held.x.mean()) == pytest.approx(0.5, abs=0.01)
    with pytest.raises(ConfigurationError, match="noise has 1 classes"):
        require_fit("noise", 10, TABLE, labels=True)


def test_unsuitable_data_sets_are_rejected_without_reading_them() -> None:
    with pytest.raises(
        ConfigurationError, match=r"\(68,\); they cannot be converted to shape \(1, 28, 28\)"
    ):
        require_fit("phishing", 10, Data(dataset="mnist"))
    with pytest.raises(ConfigurationError, match="cannot be converted"):
        require_fit("hapt", 10, Data(dataset="cifar10"))
    with pytest.raises(ConfigurationError, match="cifar100 has 100 classes"):
        require_fit("cifar100", 10, Data(dataset="cifar10"), labels=True)
    assert require_fit("cifar100", 10, Data(dataset="cifar10")).name == "cifar100"


def test_images_are_converted_to_other_channels_and_sizes() -> None:
    x = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    assert convert_shape(x, (3, 8, 8)) is x
    grey = convert_shape(x, (1, 8, 8))
    assert torch.allclose(grey[:, 0], 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2])
    back = convert_shape(grey, (3, 8, 8))
    assert torch.equal(back, grey.repeat(1, 3, 1, 1))
    # Halving a side averages with the triangle's weights 1, 3, 3, 1 over 8 (inside the image).
    row = torch.tensor([0.0, 0, 0, 8, 0, 0, 0, 0]).view(1, 1, 1, 8).expand(1, 1, 8, 8)
    halved = convert_shape(row.contiguous(), (1, 4, 4))
    assert halved[0, 0, 1].tolist() == pytest.approx([0, 3, 1, 0])


def test_sample_cap_keeps_a_subset_of_each_clients_share() -> None:
    plain, capped = Data(dataset="digits", clients=5), Data(dataset="digits", clients=5, samples=40)
    for whole, part in zip(partition_data(plain, 1)[1], partition_data(capped, 1)[1], strict=True):
        assert len(part) == 40
        assert torch.isin(part, whole).all()
        assert torch.equal(part, part.sort().values)
    assert len(client_data(capped, 0, 1).y_train) == 30
    few = Data(dataset="digits", clients=5, samples=10_000)
    assert [len(p) for p in partition_data(few, 1)[1]] == [
        len(p) for p in partition_data(plain, 1)[1]
    ]
