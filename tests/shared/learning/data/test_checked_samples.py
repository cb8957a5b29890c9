"""Samples of a user's own data set and data attack: each mistake is refused with its name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rampart_fl.shared.attacks.base import DataAttack
from rampart_fl.shared.attacks.data import attacks
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Data
from rampart_fl.shared.learning.data.client_data import client_data, partition_data, poisoned
from rampart_fl.shared.learning.data.datasets import Dataset, Samples, datasets
from rampart_fl.shared.learning.data.server_data import server_data

OwnMember = Callable[..., type]
TABLE = Data(dataset="own", clients=2)
X, Y = torch.zeros(10, 3), torch.arange(10) % 4
NAN = torch.full((10, 3), torch.nan)
LATE = torch.cat([X[:-1], torch.full((1, 3), -torch.inf)])


def own_dataset(given: Any, seeded: bool = False) -> type[Dataset]:
    """A data set of three features and four classes that returns or raises the given value."""

    class Own(Dataset):
        @property
        def shape(self) -> tuple[int, ...]:
            return (3,)

        @property
        def classes(self) -> int:
            return 4

        def load(self) -> Samples:
            if isinstance(given, Exception):
                raise given
            return given

        def draw(self, seed: int) -> Samples | None:
            return self.load() if seeded else None

    return Own


WRONG = [
    (None, "returned None, not Samples"),
    ((X, Y), "returned a builtins.tuple, not Samples"),
    (Samples(NAN, Y, 4), "x has values that are not finite"),
    (Samples(LATE, Y, 4), "x has values that are not finite"),
    (Samples(X, Y[:8], 4), "y has shape (8,), but there are 10 samples"),
    (Samples(X.double(), Y, 4), "x is a tensor of torch.float64 with shape (10, 3), not a tensor"),
    (Samples(X.numpy(), Y, 4), "x is a numpy.ndarray, not a tensor"),
    (Samples(X[:, :2], Y, 4), "x has shape (10, 2), not (n, *(3,))"),
    (Samples(X[:0], Y[:0], 4), "so there are no samples"),
    (Samples(torch.tensor(1.0), Y, 4), "so there are no samples"),
    (Samples(X, Y, 5), "the samples have 5 classes, but the data set declares 4"),
    (Samples(X, Y + 1, 4), "y has numbers from 1 to 4, outside 0..3"),
    (Samples(X, Y - 1, 4), "y has numbers from -1 to 2, outside 0..3"),
    (Samples(X, Y.float(), 4), "y is a tensor of torch.float32 with shape (10,), not"),
    (Samples(X, Y.int(), 4), "y is a tensor of torch.int32 with shape (10,), not"),
    (Samples(X, np.arange(10) % 4, 4), "y is a numpy.ndarray, not a tensor"),
    (Samples(X, Y[:, None], 4), "y has shape (10, 1), but there are 10 samples"),
    (Samples(X, Y, 4, groups=Y[:3]), "groups is a tensor of torch.int64 with shape (3,), not"),
    (Samples(X, Y, 4, held_out=Y), "held_out is a tensor of torch.int64 with shape (10,), not"),
    (Samples(X, Y, 4, scale=0), "scale is 0, not a positive number"),
]


@pytest.mark.parametrize(("given", "problem"), WRONG)
@pytest.mark.parametrize("seeded", [False, True])
def test_wrong_samples_are_refused_with_the_name_of_the_data_set(
    own_member: OwnMember, given: Any, problem: str, seeded: bool
) -> None:
    own_member(datasets, own_dataset(given, seeded))
    with pytest.raises(ConfigurationError) as caught:
        partition_data(TABLE, 1)
    assert str(caught.value).startswith("data set 'own' of my-package==1")
    assert problem in str(caught.value)


def test_the_server_refuses_wrong_samples_too(own_member: OwnMember) -> None:
    own_member(datasets, own_dataset(Samples(NAN, Y, 4)))
    clients = Data(dataset={"name": "noise", "sample": [3]}, clients=2)
    with pytest.raises(ConfigurationError, match="data set 'own' of my-package==1: x has values"):
        server_data("own", 4, clients, seed=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int16, torch.int64])
def test_token_ids_and_pixels_may_be_integers(own_member: OwnMember, dtype: torch.dtype) -> None:
    own_member(datasets, own_dataset(Samples(torch.arange(30).view(10, 3).to(dtype), Y, 4)))
    samples, _ = partition_data(TABLE, 1)
    assert samples.take()[3].tolist() == [9, 10, 11]


@pytest.mark.parametrize("seeded", [False, True])
def test_errors_of_a_data_set_name_it(own_member: OwnMember, seeded: bool) -> None:
    own_member(datasets, own_dataset(KeyError("column"), seeded))
    with pytest.raises(KeyError) as caught:
        partition_data(TABLE, 1)
    assert caught.value.__notes__ == ["raised by 'own' of my-package==1"]


def attack(own_member: OwnMember, given: Any) -> DataAttack:
    """A data attack that returns or raises the given value."""

    class Own(DataAttack):
        def apply(self, *args: Any) -> Any:
            if isinstance(given, Exception):
                raise given
            return given

    own_member(attacks, Own)
    return attacks.build("own")


IMAGES, LABELS = torch.zeros(5, 1, 8, 8), torch.zeros(5, dtype=torch.long)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "returned None, not samples and labels"),
        ((IMAGES, LABELS[:4]), "y has shape (4,), but there are 5 samples"),
        ((IMAGES, LABELS.float()), "y is a tensor of torch.float32"),
        ((IMAGES, LABELS + 10), "y has numbers from 10 to 10, outside 0..9"),
        ((IMAGES.numpy(), LABELS), "the samples are a numpy.ndarray"),
        ((IMAGES.flatten(1), LABELS), "the samples have shape (5, 64), not (n, *(1, 8, 8))"),
        ((IMAGES[:0], LABELS[:0]), "the samples have shape (0, 1, 8, 8)"),
    ],
)
def test_wrong_poison_is_refused_with_the_name_of_the_attack(
    own_member: OwnMember, given: Any, problem: str
) -> None:
    own = client_data(Data(dataset="digits", clients=20), 0, seed=1)
    with pytest.raises(ConfigurationError) as caught:
        poisoned(own, attack(own_member, given), 1, "a", 0)
    assert str(caught.value).startswith("data attack 'own' of my-package==1")
    assert problem in str(caught.value)


def test_errors_of_a_data_attack_name_it_and_correct_poison_is_used(own_member: OwnMember) -> None:
    own = client_data(Data(dataset="digits", clients=20), 0, seed=1)
    with pytest.raises(KeyError) as caught:
        poisoned(own, attack(own_member, KeyError("a")), 1, "a", 0)
    assert caught.value.__notes__ == ["raised by 'own' of my-package==1"]
    bad = poisoned(own, attack(own_member, (IMAGES, LABELS)), 1, "a", 0)
    assert torch.equal(bad.x_train, IMAGES)
