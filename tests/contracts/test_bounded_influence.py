"""No f rows, whatever their values and claims, move a robust rule further than honest rows allow.

The yardstick is the honest rows: a rule that follows directions or distances stays within a few of
their deviations from their mean; a rule that bounds norms stays within their norms.
"""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rampart_fl.shared.robust import Context, Pipeline, Rows
from rampart_fl.shared.robust.context import PublicData
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules

N, F, D = 15, 2, 8
IDS = [f"{i:02d}" for i in range(N)]

NEEDS: Mapping[str, Mapping[str, Any]] = {"monna": {"pivot": "14"}, "sdea": {"epochs": 1}}
"""Parameters of rules whose default is missing or slow."""

PUBLIC = PublicData(torch.eye(4)[:2], torch.tensor([0, 1]))
"""Public samples for linear models of two classes."""

UNBOUNDED = {name for name in rules.names() if rules.get(name).breakdown == "none"}
"""Rules that declare that one row can move them anywhere."""

ONE_SIZE = {"dnc"}
"""Rules that hold only against rows of one size, as their documentation says."""

WEIGHED = {"rfa"}
"""Robust rules that use trusted weights, which a server caps before aggregation."""

ROBUST = [name for name in rules.names() if name not in UNBOUNDED]


def hostile(seed: int, exponents: list[float], same: bool) -> Tensor:
    """F rows in random directions, of sizes 10^exponent, or F copies of one."""
    draws = torch.Generator().manual_seed(seed)
    rows_FD = torch.randn(F, D, generator=draws)
    if same:
        rows_FD, exponents = rows_FD[:1].repeat(F, 1), exponents[:1] * F
    sizes_F = torch.tensor([10.0**exponent for exponent in exponents])
    return rows_FD / rows_FD.norm(dim=1, keepdim=True) * sizes_F[:, None]


def run(pipeline: Pipeline, block_ND: Tensor) -> Tensor:
    claims_N = torch.ones(N, dtype=torch.float64)
    claims_N[:F] = 1e9
    rows = Rows.of(
        block_ND,
        ids=IDS,
        weights=None if pipeline.rule.name in WEIGHED else claims_N,
        metadata={"loss_gap": claims_N, "samples": claims_N, "weight": claims_N},
    )
    context = Context(
        seed=1,
        server_update_D=torch.ones(D),
        reference_D=torch.zeros(D),
        predict=lambda models_KD, x_KB: x_KB @ models_KD.unflatten(1, (4, 2)),
        public=PUBLIC,
    )
    return pipeline.apply(rows, pipeline.init(D), context)[0]


def moved(pipeline: Pipeline, seed: int, hostile_FD: Tensor) -> float:
    """The distance of the result from the honest mean, in multiples of its bound."""
    draws = torch.Generator().manual_seed(seed + 1)
    honest_ND = 0.5 + torch.randn(N - F, D, generator=draws)
    result_D = run(pipeline, torch.cat([hostile_FD, honest_ND]))
    assert result_D.isfinite().all()
    mean_D = honest_ND.mean(dim=0)
    reach = float((honest_ND - mean_D).norm(dim=1).max()) + float(mean_D.norm())
    return float((result_D.double() - mean_D).norm()) / reach


def check(pipeline: Pipeline, seed: int, exponents: list[float], same: bool) -> None:
    # Coordinate-wise rules may combine the extremes of every coordinate: sqrt(N) at the most.
    assert moved(pipeline, seed, hostile(seed, exponents, same)) <= N**0.5


@pytest.mark.parametrize("name", ROBUST)
@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**20),
    exponents=st.lists(st.floats(-3, 30), min_size=F, max_size=F),
    same=st.booleans(),
)
def test_f_hostile_rows_have_bounded_influence_on_every_robust_rule(
    name: str, seed: int, exponents: list[float], same: bool
) -> None:
    stage = {"name": name, **NEEDS.get(name, {})}
    check(Pipeline.of(stage, f=F), seed, exponents, same or name in ONE_SIZE)


@pytest.mark.parametrize("before", preaggregators.names())
@pytest.mark.parametrize("exponent", [0.0, 3.0, 9.0, 20.0, 30.0])
def test_influence_stays_bounded_behind_every_pre_aggregator(before: str, exponent: float) -> None:
    for rule in ("trimmed_mean", "geometric_median"):
        pipeline = Pipeline.of([before, rule], f=F)
        for seed in range(3):
            check(pipeline, seed, [exponent, exponent / 2], same=False)
            check(pipeline, seed, [exponent] * F, same=True)


@pytest.mark.parametrize("name", sorted(UNBOUNDED))
def test_rules_declared_without_robustness_can_be_moved_arbitrarily_far(name: str) -> None:
    pipeline = Pipeline.of({"name": name, **NEEDS.get(name, {})}, f=F)
    result = (moved(pipeline, seed, hostile(seed, [12, 12], False)) for seed in range(20))
    assert any(far > 1e6 for far in result), f"{name} is bounded after all: let it say so"
