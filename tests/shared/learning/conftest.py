"""Small clients with unequal data, and a learner for them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.families.registry import FamilyMember, Registry
from rampart_fl.shared.learning.data import client_data
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.learner import Learner
from tests.conftest import ForgetMembers


def make_experiment(**tables: Any) -> Experiment:
    """A small experiment on digits with some tables replaced."""
    return Experiment.from_tables(
        {
            "name": "small",
            "data": {"dataset": "digits", "clients": 4, "samples": 60},
            "model": {"name": "cnn", "channels": [2, 3], "hidden": 5},
            "training": {"epochs": 2, "batch_size": 4},
            "personalizer": {"name": "fedcap", "lambda": 0.3},
            **tables,
        }
    )


@pytest.fixture
def make_learner() -> Callable[..., Learner]:
    """Builds a learner in float64 from tables."""

    def make(**tables: Any) -> Learner:
        learner = Learner.of(make_experiment(**tables))
        learner.network.module.double()
        return learner

    return make


@pytest.fixture
def clients() -> list[ClientData]:
    """Three clients with 10, 7 and 4 samples: ragged batches, unequal numbers of steps."""
    draws = torch.Generator().manual_seed(2)

    def samples(n: int) -> torch.Tensor:
        return torch.rand(n, 1, 8, 8, generator=draws, dtype=torch.float64)

    def labels(n: int) -> torch.Tensor:
        return torch.randint(10, (n,), generator=draws)

    return [
        ClientData(samples(n), labels(n), samples(t), labels(t), 10)
        for n, t in ((10, 3), (7, 4), (4, 2))
    ]


OwnMember = Callable[[Registry[Any], type[FamilyMember]], type[FamilyMember]]


@pytest.fixture
def own_member(forget_members: ForgetMembers) -> Iterator[OwnMember]:
    """Adds a member to a family, under the name "own", as if it came from another package."""

    def add(family: Registry[Any], member: type[FamilyMember]) -> type[FamilyMember]:
        forget_members(family)
        family.register("own")(member)
        member.package = "my-package==1"
        return member

    yield add
    for cache in (client_data._partition, client_data._samples, client_data._standardized):
        cache.cache_clear()
