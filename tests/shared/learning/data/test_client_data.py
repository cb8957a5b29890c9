"""A client's data: its share of a data set, its own file, and errors in a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rampart_fl.shared.attacks.data import attacks
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Data
from rampart_fl.shared.learning.data.client_data import client_data, client_data_from_file, poisoned
from rampart_fl.shared.learning.data.datasets import datasets

TABLE = Data(dataset="digits", partition={"name": "classes_per_client", "classes": 2}, clients=20)


def test_clients_share_no_samples_and_hold_two_classes() -> None:
    everyone = [client_data(TABLE, slot, seed=1) for slot in range(20)]
    samples = torch.cat([torch.cat([own.x_train, own.x_test]) for own in everyone])
    assert len(samples) == 1797
    assert len(samples.flatten(1).unique(dim=0)) == 1797  # the images are all distinct
    for own in everyone:
        labels = torch.cat([own.y_train, own.y_test])
        assert len(labels.unique()) == 2
        assert len(own.y_test) == round(len(labels) / 4)


def test_the_same_slot_and_seed_give_the_same_data() -> None:
    first, again = client_data(TABLE, 3, seed=1), client_data(TABLE, 3, seed=1)
    other = client_data(TABLE, 3, seed=2)
    assert torch.equal(first.x_train, again.x_train)
    assert not torch.equal(first.x_test.sum(), other.x_test.sum())


def test_invalid_slots_and_too_few_samples_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="no slot 20: the slots are 0 to 19"):
        client_data(TABLE, 20, seed=1)
    tiny = Data(dataset="digits", clients=1797)
    with pytest.raises(ConfigurationError, match="client 0 got 1 samples"):
        client_data(tiny, 0, seed=1)


def test_poisoning_changes_only_the_training_labels() -> None:
    own = client_data(TABLE, 0, seed=1)
    bad = poisoned(own, attacks.build("label_flip"), seed=1, client="client-00", attacker=0)
    assert torch.equal(bad.y_train, (own.y_train + 1) % 10)
    assert torch.equal(bad.y_test, own.y_test)


def write(folder: Path, **arrays: Any) -> Path:
    usual = {
        "x_train": np.full((3, 8, 8), 255, dtype=np.uint8),
        "y_train": np.array([0, 1, 9]),
        "x_test": np.zeros((2, 8, 8), dtype=np.uint8),
        "y_test": np.array([1, 2], dtype=np.uint8),
    }
    path = folder / "own.npz"
    np.savez(path, **{k: v for k, v in {**usual, **arrays}.items() if v is not None})
    return path


def test_own_file_is_read_and_scaled(tmp_path: Path) -> None:
    own = client_data_from_file(write(tmp_path), datasets.build("digits"))
    assert own.x_train.shape == (3, 1, 8, 8)
    assert (own.x_train == 1).all()
    assert own.y_test.tolist() == [1, 2]


def test_channels_may_be_last_and_floats_are_not_rescaled(tmp_path: Path) -> None:
    x = np.arange(2 * 32 * 32 * 3, dtype=np.float64).reshape(2, 32, 32, 3)
    path = write(tmp_path, x_train=x, y_train=np.array([0, 1]), x_test=x)
    own = client_data_from_file(path, datasets.build("svhn"))
    assert own.x_train[0, 2, 1, 0] == x[0, 1, 0, 2]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y_test": None}, "lacks y_test"),
        ({"y_train": np.array([0, 1])}, "x_train|y_train"),
        ({"y_train": np.array([0, 1, 10])}, "outside 0..9"),
        ({"y_train": np.array([0, -1, 1])}, "outside 0..9"),
        ({"y_train": np.array([0.0, 1.0, 1.0])}, "not 3 integers"),
        ({"x_train": np.zeros((3, 8, 9))}, "shape"),
        ({"x_train": np.full((3, 8, 8), np.nan)}, "not finite"),
        ({"x_train": np.array(["a", "b", "c"])}, "not numbers"),
        ({"x_train": np.array([{}, {}, {}], dtype=object)}, "cannot read"),
    ],
)
def test_invalid_arrays_are_rejected_with_the_reason(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        client_data_from_file(write(tmp_path, **arrays), datasets.build("digits"))


def test_missing_or_unreadable_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read"):
        client_data_from_file(tmp_path / "none.npz", datasets.build("digits"))
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ConfigurationError, match="cannot read"):
        client_data_from_file(tmp_path / "text.npz", datasets.build("digits"))


def test_own_texts_and_features_are_prepared_like_those_of_the_data_set(tmp_path: Path) -> None:
    texts = np.array(["one two", "three"])
    path = write(tmp_path, x_train=texts, y_train=np.array([0, 3]), x_test=texts)
    news = datasets.build("ag_news", length=4)
    own = client_data_from_file(path, news)
    assert torch.equal(own.x_train, news.prepared(texts, "texts"))
    assert own.x_train[0].gt(0).tolist() == [True, True, False, False]
    ones = np.ones((2, 68), dtype=np.uint8)
    path = write(
        tmp_path, x_train=ones, y_train=np.array([0, 1]), x_test=ones, y_test=np.array([1, 1])
    )
    own = client_data_from_file(path, datasets.build("phishing"))
    assert own.x_train.unique().tolist() == [1]
