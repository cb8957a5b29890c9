"""Dirichlet partitions: the strength of the skew, the minimum, and the balance."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.partitions import dirichlet, partitions
from rampart_fl.shared.learning.data.partitions.dirichlet import _dirichlet

Y = torch.arange(10).repeat_interleave(200)


def split(**parameters: float) -> list[torch.Tensor]:
    member = partitions.build("dirichlet", **parameters)
    return member.split(Y, 8, torch.Generator().manual_seed(4))


def largest_share(parts: list[torch.Tensor]) -> float:
    """Mean share of a client's most frequent class."""
    return sum(float(Y[part].bincount().max()) / len(part) for part in parts) / len(parts)


def test_all_samples_are_dealt_and_every_client_has_the_minimum() -> None:
    parts = split(beta=0.3, minimum=40)
    assert sum(len(part) for part in parts) == 2000
    assert min(len(part) for part in parts) >= 40


def test_small_beta_is_skewed_and_large_beta_is_not() -> None:
    assert largest_share(split(beta=0.1)) > 0.5
    assert largest_share(split(beta=1000.0)) < 0.13


def test_balanced_option_narrows_the_spread_of_sizes() -> None:
    spread = [
        max(map(len, parts)) - min(map(len, parts))
        for parts in (split(beta=0.2, balanced=True), split(beta=0.2, balanced=False))
    ]
    assert spread[0] < spread[1]


def test_unreachable_minimum_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="8 clients with 300 each"):
        split(minimum=300)
    monkeypatch.setattr(dirichlet, "TRIES", 30)
    with pytest.raises(ConfigurationError, match="each of 30 draws"):
        split(beta=0.001, minimum=250, balanced=False)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("beta", [0.01, 0.4])
def test_partition_equals_a_loop_over_samples(balanced: bool, beta: float) -> None:
    # The same draws: per class a permutation, then the clients' gammas.
    clients, draws = 2, torch.Generator().manual_seed(6)
    held: list[list[int]] = [[] for _ in range(clients)]
    for label in range(10):
        own = [i for i in range(len(Y)) if Y[i] == label]
        order = torch.randperm(len(own), generator=draws).tolist()
        rates = torch.full((clients,), beta, dtype=torch.float64)
        shares = torch._standard_gamma(rates, generator=draws).tolist()
        if balanced:
            shares = [
                p if len(h) < len(Y) / clients else 0.0 for p, h in zip(shares, held, strict=True)
            ]
        total, reached, start = sum(shares), 0.0, 0
        for client, share in enumerate(shares):
            reached += share / total
            stop = len(own) if client == clients - 1 else round(reached * len(own))
            held[client] += [own[i] for i in order[start:stop]]
            start = stop
    parts = partitions.build("dirichlet", beta=beta, minimum=1, balanced=balanced).split(
        Y, clients, torch.Generator().manual_seed(6)
    )
    assert [part.tolist() for part in parts] == [sorted(own) for own in held]
    if balanced:
        # A client that already has the average gets nothing more: at most one class above it.
        assert max(map(len, parts)) < len(Y) / clients + 200


def test_shares_have_the_moments_of_a_dirichlet_distribution() -> None:
    # Dir(β·1_K) has mean 1/K and variance (1 - 1/K)/K/(Kβ + 1).
    draws, k, beta = torch.Generator().manual_seed(7), 5, 0.3
    all_K = torch.ones(k, dtype=torch.bool)
    shares_TK = torch.stack([_dirichlet(beta, all_K, draws) for _ in range(4000)])
    assert shares_TK.sum(1).tolist() == pytest.approx([1.0] * 4000)
    assert shares_TK.mean(0).tolist() == pytest.approx([1 / k] * k, abs=0.02)
    variance = (1 - 1 / k) / k / (k * beta + 1)
    assert shares_TK.var(0).tolist() == pytest.approx([variance] * k, rel=0.08)


@pytest.mark.parametrize("beta", [1e-3, 1e-4, 1e-5, 1e-310])
@pytest.mark.slow
def test_tiny_beta_gives_a_class_to_one_client(beta: float) -> None:
    """The gammas underflow; before, all clients then got the same share of the class."""
    draws, open_K = torch.Generator().manual_seed(7), torch.ones(8, dtype=torch.bool)
    open_K[3] = False
    shares_TK = torch.stack([_dirichlet(beta, open_K, draws) for _ in range(2000)])
    shares_TK /= shares_TK.sum(dim=1, keepdim=True)
    assert not shares_TK[:, 3].any()
    # Dir(β·1_K) has mean 1/K, and the mean of sum_i p_i² is (β + 1) / (Kβ + 1).
    assert shares_TK.mean(0)[open_K].tolist() == pytest.approx([1 / 7] * 7, abs=0.025)
    concentration = float(shares_TK.square().sum(1).mean())
    assert concentration == pytest.approx((beta + 1) / (7 * beta + 1), abs=2e-3)
    assert largest_share(split(beta=beta, minimum=1)) > 0.8
