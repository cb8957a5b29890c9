"""FedREDefense: trained updates are accepted, noise is evicted, and searches resume."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import flatten
from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.base import Detector
from rampart_fl.shared.robust.detectors import detectors

SHAPE, CLASSES = (6,), 3
IDS = ["ada", "bob", "cleo", "dan"]


def build() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES))


NETWORK = Stacked(build())
START_D = flatten(NETWORK.module)


def context(round_: int = 0) -> Context:
    return Context(round=round_, seed=4, reference_D=START_D, predict=NETWORK.logits, shape=SHAPE)


def trained(seed: int, steps: int = 5) -> Tensor:
    """The update of a few steps of plain gradient descent on six samples."""
    draws = torch.Generator().manual_seed(seed)
    x, y = torch.randn(6, *SHAPE, generator=draws), torch.randint(CLASSES, (6,), generator=draws)
    module = build()
    parts = [part for _, part in sorted(module.named_parameters())]
    for _ in range(steps):
        slopes = torch.autograd.grad(functional.cross_entropy(module(x), y), parts)
        with torch.no_grad():
            for part, slope in zip(parts, slopes, strict=True):
                part.sub_(slope, alpha=0.05)
    return flatten(module) - START_D


def noise(seed: int, like_D: Tensor) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return like_D.std() * torch.randn(len(like_D), generator=draws)


def detector(**parameters: Any) -> Detector:
    return detectors.build("fedredefense", **{"iterations": 150, **parameters})


def block() -> Tensor:
    honest = [trained(seed) for seed in range(3)]
    return torch.stack([*honest, noise(9, honest[0])])


@pytest.mark.slow
def test_trained_updates_are_accepted_and_noise_is_evicted() -> None:
    verdicts, state = detector().apply(Rows.of(block(), ids=IDS), State(), context())
    assert [verdict.decision for verdict in verdicts] == ["accepted"] * 3 + ["evicted"]
    assert all(verdict.score < 0.6 for verdict in verdicts[:3])
    assert 0.85 < verdicts[3].score < 1.2
    assert "reconstruction error" in verdicts[3].reason
    assert state.ids["rates"] == ("ada", "bob", "cleo")
    assert state.tensors["samples"].shape == (3, CLASSES, *SHAPE)


@pytest.mark.slow
def test_updates_of_long_training_are_explained_by_larger_search_steps() -> None:
    honest = [trained(seed, 160) for seed in range(3)]
    rows = Rows.of(torch.stack([*honest, noise(9, honest[0])]), IDS)
    small, _ = detector(iterations=80, larger=1).apply(rows, State(), context())
    assert {verdict.decision for verdict in small} == {"evicted"}
    verdicts, state = detector(iterations=80).apply(rows, State(), context())
    assert [verdict.decision for verdict in verdicts] == ["accepted"] * 3 + ["evicted"]
    assert state.ids["rates"] == ("ada", "bob", "cleo")
    whole, _ = detector(
        iterations=80, larger=1, rate=0.5, sample_rate=1.0, label_rate=0.5, rate_rate=5e-4
    ).apply(rows, State(), context())
    for repeated, large in zip(verdicts[:3], whole[:3], strict=True):
        assert repeated.score == large.score, "the repetition begins anew"


def test_search_that_diverges_with_larger_steps_keeps_the_first_result() -> None:
    rows = Rows.of(block(), ids=IDS)
    first, _ = detector(iterations=3, larger=1).apply(rows, State(), context())
    verdicts, _ = detector(iterations=3, larger=1e6).apply(rows, State(), context())
    assert [verdict.score for verdict in verdicts] == [verdict.score for verdict in first]


def test_search_matches_the_papers_algorithm_for_one_client() -> None:
    """One client: a module with five explicitly unrolled steps, and torch.optim.SGD."""
    update_D, iterations = trained(1), 7
    names = sorted(name for name, _ in NETWORK.module.named_parameters())
    x = torch.randn(
        CLASSES, *SHAPE, generator=context().generator("fedredefense bob")
    ).requires_grad_()
    label = torch.zeros(CLASSES, CLASSES, requires_grad=True)
    rate = torch.tensor(0.05, requires_grad=True)
    optimizer = torch.optim.SGD(
        [
            {"params": [x], "lr": 0.1},
            {"params": [label], "lr": 0.05},
            {"params": [rate], "lr": 5e-5},
        ],
        lr=0.1,
        momentum=0.5,
    )
    for iteration in range(iterations + 1):
        theta = {name: p.detach() for name, p in NETWORK.module.named_parameters()}
        for _ in range(5):
            theta = {name: p.requires_grad_() if p.is_leaf else p for name, p in theta.items()}
            logits = torch.func.functional_call(NETWORK.module, theta, (x,))
            loss = functional.cross_entropy(logits, label.softmax(1))
            slopes = torch.autograd.grad(loss, [theta[n] for n in names], create_graph=True)
            theta = {n: theta[n] - rate * s for n, s in zip(names, slopes, strict=True)}
        moved_D = torch.cat([theta[name].flatten() for name in names]) - START_D
        error = (moved_D - update_D).square().sum() / update_D.square().sum()
        if iteration < iterations:
            optimizer.zero_grad()
            torch.autograd.backward(error)
            optimizer.step()
    whole = torch.stack([noise(8, update_D), update_D])
    patient = detector(iterations=iterations, threshold=1e-3, larger=1)
    verdicts, _ = patient.apply(Rows.of(whole, ids=["ada", "bob"]), State(), context())
    assert verdicts[1].score == pytest.approx(error.item(), rel=1e-4)


@pytest.mark.slow
def test_batched_search_equals_searching_one_client_at_a_time() -> None:
    rows = Rows.of(block(), ids=IDS)
    together, one = detector(iterations=30), detector(iterations=30, at_once=1)
    first, _ = together.apply(rows, State(), context())
    second, _ = one.apply(rows, State(), context())
    for a, b in zip(first, second, strict=True):
        assert a.score == pytest.approx(b.score, rel=1e-3)


def test_zero_and_nan_updates_are_evicted() -> None:
    rows = torch.stack([trained(0), torch.zeros_like(START_D), START_D * float("nan")])
    verdicts, state = detector().apply(Rows.of(rows, ids=IDS[:3]), State(), context())
    assert [verdict.decision for verdict in verdicts] == ["accepted", "evicted", "evicted"]
    assert verdicts[1].score == 1
    assert state.ids["rates"] == ("ada",)


@pytest.mark.slow
def test_search_resumes_from_the_previous_round() -> None:
    rows = Rows.of(block()[:1], ids=["ada"])
    _, state = detector(threshold=0.55).apply(rows, State(), context())
    patient = detector(iterations=1, warm_iterations=30, threshold=0.3)
    warm, after = patient.apply(rows, state, context(1))
    cold, _ = patient.apply(rows, State(), context(1))
    assert warm[0].score < 0.55 < cold[0].score
    one = Rows.of(block()[1:2], ids=["bob"])
    held = State({**state.tensors}, state.ids)
    _, kept = detector().apply(one, held, context(2))
    assert kept.ids["rates"] == ("ada", "bob")
    assert torch.equal(kept.by_id("samples")["ada"], state.by_id("samples")["ada"])
    assert after.ids.get("rates", ()) == ("ada",) * (warm[0].decision == "accepted")


def test_fedredefense_requires_the_network() -> None:
    assert detector().needs() == {"predict"}
    with pytest.raises(ConfigurationError, match="network"):
        detector().apply(Rows.of(block()), State(), replace(context(), predict=None))


def test_detection_works_while_gradients_are_disabled() -> None:
    rows = Rows.of(block()[:1])
    with torch.no_grad():
        verdicts, _ = detector().apply(rows, State(), context())
    assert verdicts[0].decision == "accepted"
