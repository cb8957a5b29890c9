"""Models as vectors: conversion in both directions, and the first model of a federation."""

import torch
from torch import nn

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.network.vector import (
    flatten,
    initial_model,
    load,
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
