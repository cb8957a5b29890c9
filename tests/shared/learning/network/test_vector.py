"""Models as vectors: conversion in both directions, and the first model of a federation."""

import torch
from torch import nn

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.network.vector import (
    build_module,
    flatten,
    initial_model,
    load,
    outline,
    spec_of,
    unflatten,
)


def test_flatten_and_load_are_inverses() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2, bias=False))
    model_D = torch.arange(12.0)
    assert torch.equal(flatten(load(module, model_D)), model_D)
    named = unflatten(model_D, spec_of(module))
    assert named["0.bias"].tolist() == [0, 1]
    assert named["0.weight"].tolist() == [[2, 3, 4], [5, 6, 7]]


def test_initial_model_depends_only_on_the_seed() -> None:
    experiment = Experiment.load("digits-benign")
    before = torch.get_rng_state()
    spec, first_D = initial_model(experiment)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(initial_model(experiment)[1], first_D)
    other_D = initial_model(experiment.model_copy(update={"seed": 2}))[1]
    assert first_D.shape == (spec.dim,)
    assert not torch.equal(other_D, first_D)


class Scheduled(nn.Linear):
    """A user's network whose code needs values while it is built."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape[0], classes)
        self.rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]


def test_outline_needs_no_memory_but_has_the_same_tensors() -> None:
    experiment = Experiment.load("digits-benign")
    module = outline(experiment)
    assert all(parameter.is_meta for parameter in module.parameters())
    assert spec_of(module) == spec_of(build_module(experiment))


def test_outline_of_a_users_network_has_values() -> None:
    tables = Experiment.load("digits-benign").tables()
    tables["data"] = {"dataset": "phishing", "clients": 2}
    tables["model"] = {"name": "module", "path": f"{__name__}:Scheduled"}
    module = outline(Experiment.from_tables(tables))
    assert isinstance(module, Scheduled) and module.rates == [0, 0.25, 0.5]
