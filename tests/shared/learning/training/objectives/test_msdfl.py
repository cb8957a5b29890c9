"""MSDFL: both forms equal the closed form of a linear model and a loop in plain torch."""

import copy

import pytest
import torch
from torch import Tensor, nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import flatten, load, spec_of
from rampart_fl.shared.learning.training.cohort import StepRandomness
from rampart_fl.shared.learning.training.objectives import Point, objectives
from rampart_fl.shared.learning.training.objectives import msdfl as module_of_msdfl
from rampart_fl.shared.learning.training.personalizers import Batch

DRAWS = StepRandomness(seed=1, names=("a", "b"), round=0, step=0, sizes=(3, 2))
WEIGHT_KB = torch.tensor([[1 / 3] * 3, [1 / 2, 1 / 2, 0]], dtype=torch.float64)


def point(module: nn.Module, features: int, scale: float = 0.5) -> Point:
    """Two models with three and two samples of five classes."""
    network, draws = Stacked(module.double()), torch.Generator().manual_seed(2)
    noise_KD = torch.randn(2, network.spec.dim, generator=draws, dtype=torch.float64)
    models_KD = flatten(module) + scale * noise_KD
    x_KB = torch.randn(2, 3, features, generator=draws, dtype=torch.float64)
    y_KB = torch.randint(5, (2, 3), generator=draws)
    return Point(network, models_KD, models_KD, Batch(x_KB, y_KB, WEIGHT_KB), DRAWS)


def closed_form(weights_D: Tensor, x_BF: Tensor, y_B: Tensor, form: str) -> Tensor:
    """For z = W x: ∂p_c = p_c (δ_c - p) xᵀ, so |∂p_c| = p_c |δ_c - p| |x|."""
    probabilities_BC = (x_BF @ weights_D.view(5, -1).T).softmax(1)
    true_BC = torch.eye(5, dtype=torch.float64)[y_B]
    p_B = (probabilities_BC * true_BC).sum(1)
    left_BC = p_B[:, None] * (true_BC - probabilities_BC)
    if form == "per_sample":
        return (left_BC.norm(dim=1) * x_BF.norm(dim=1)).mean()
    return 0.5 * (left_BC.T @ x_BF).square().sum() / len(x_BF)


@pytest.mark.parametrize("form", ["per_sample", "batch_sum"])
def test_gradient_of_a_linear_model_matches_its_closed_form(form: str) -> None:
    at = point(nn.Sequential(nn.Linear(4, 5, bias=False)), 4)
    found_KD = objectives.build("msdfl", **{"lambda": 0.3, "form": form}).gradient(at)
    for k, size in enumerate((3, 2)):
        weights_D = at.models_KD[k].clone().requires_grad_()
        value = closed_form(weights_D, at.batch.x_KB[k, :size], at.batch.y_KB[k, :size], form)
        (expected_D,) = torch.autograd.grad(0.3 * value, weights_D)
        assert torch.allclose(found_KD[k], expected_D, rtol=0, atol=1e-12)


def test_closed_form_matches_hand_calculation_at_zero_weights() -> None:
    """At W = 0, p = 1/5 and the norm is 1/5 |δ - 1/5| |x| = 1/5 sqrt(4/5) |x|."""
    x_BF, y_B = torch.tensor([[3.0, 4.0]]).double(), torch.tensor([2])
    norm = closed_form(torch.zeros(10).double(), x_BF, y_B, "per_sample")
    assert float(norm) == pytest.approx(0.2 * 0.8**0.5 * 5)


def looped(network: Stacked, model_D: Tensor, x_BF: Tensor, y_B: Tensor, form: str) -> Tensor:
    """The term's gradient with torch.nn, one sample at a time."""
    module = load(copy.deepcopy(network.module), model_D)
    names, tensors = zip(*module.named_parameters(), strict=True)
    slopes = []
    for x_F, y in zip(x_BF, y_B, strict=True):
        true = module(x_F[None]).softmax(1)[0, y]
        parts = torch.autograd.grad(true, tensors, create_graph=True)
        slopes.append(torch.cat([part.flatten() for part in parts]))
    if form == "per_sample":
        value = torch.stack([slope.norm() for slope in slopes]).mean()
    else:
        value = 0.5 * torch.stack(slopes).sum(0).square().sum() / len(y_B)
    result = dict(zip(names, torch.autograd.grad(value, tensors), strict=True))
    return torch.cat([result[one.name].flatten() for one in spec_of(module).tensors])


@pytest.mark.parametrize("form", ["per_sample", "batch_sum"])
@pytest.mark.parametrize("at_once", [1, 10**9])
def test_gradient_of_a_network_equals_a_loop_over_samples(
    form: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_of_msdfl, "AT_ONCE", at_once)
    at = point(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5)), 4)
    found_KD = objectives.build("msdfl", **{"lambda": 1.0, "form": form}).gradient(at)
    for k, size in enumerate((3, 2)):
        x_BF, y_B = at.batch.x_KB[k, :size], at.batch.y_KB[k, :size]
        expected_D = looped(at.network, at.models_KD[k], x_BF, y_B, form)
        assert torch.allclose(found_KD[k], expected_D, rtol=0, atol=1e-12)


def test_per_sample_and_batch_sum_forms_differ() -> None:
    at = point(nn.Sequential(nn.Linear(4, 5)), 4)
    one, other = (
        objectives.build("msdfl", form=f).gradient(at) for f in ("per_sample", "batch_sum")
    )
    assert not torch.allclose(one, other)


def test_sample_with_zero_gradient_contributes_zero_not_nan() -> None:
    """x = 0 and no bias: the norm is 0 and so is its (sub)gradient, not NaN."""
    at = point(nn.Sequential(nn.Linear(4, 5, bias=False)), 4)
    at.batch.x_KB.zero_()
    assert not objectives.build("msdfl").gradient(at).any()


def test_unknown_form_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="form"):
        objectives.build("msdfl", form="per_class")
