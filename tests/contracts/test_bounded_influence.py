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

EQUAL = {"dnc"}
"""Rules that hold only against equal hostile rows, as their documentation says."""

WEIGHED = {"rfa"}
"""Robust rules that use trusted weights, which a server caps before aggregation."""

ROBUST = [name for name in rules.names() if name not in UNBOUNDED]

LARGEST = {
    "f < n/2": 7,
    "f <= b < n/2": 7,
    "n >= 2f + 3": 6,
    "n >= 4f + 3": 3,
    "f < n": 14,
    "bounded by the threshold": 14,
    "that of its rule": 7,
    "inherited": 7,
    "f < n/2s": 3,
}
"""The largest number of hostile rows among N rows, keyed by a breakdown's text before a comma or
semicolon."""

FEW_STEPS = {"rfa": 1e3}
"""Rules that stop before they converge. The values are the documented distances, in honest radii,
if the hostile rows have the same total weight as the honest rows."""


def hostile(seed: int, exponents: list[float], same: bool, f: int = F) -> Tensor:
    """f rows in random directions, of sizes 10^exponent, or f copies of one."""
    draws = torch.Generator().manual_seed(seed)
    rows_FD = torch.randn(f, D, generator=draws)
    if same:
        rows_FD, exponents = rows_FD[:1].repeat(f, 1), exponents[:1] * f
    sizes_F = torch.tensor([10.0**exponent for exponent in exponents])
    return rows_FD / rows_FD.norm(dim=1, keepdim=True) * sizes_F[:, None]


def run(pipeline: Pipeline, block_ND: Tensor, f: int) -> Tensor:
    claims_N = torch.ones(N, dtype=torch.float64)
    claims_N[:f] = 1e9
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
    honest_ND = 0.5 + torch.randn(N - len(hostile_FD), D, generator=draws)
    result_D = run(pipeline, torch.cat([hostile_FD, honest_ND]), len(hostile_FD))
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
    check(Pipeline.of(stage, f=F), seed, exponents, same or name in EQUAL)


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 3.1, 3.5, 4.0, 6.0])
def test_most_hostile_rows_that_a_rule_tolerates_have_bounded_influence(
    name: str, exponent: float
) -> None:
    """All hostile rows are equal, which is the strongest collusion near the bound."""
    f = LARGEST[rules.get(name).breakdown.partition(",")[0]]
    pipeline = Pipeline.of({"name": name, **NEEDS.get(name, {})}, f=f)
    far = FEW_STEPS.get(name, 0.0) * (f / (N - f)) ** 5
    for seed in range(2):
        # The honest radius is about 3, so the hostile row is about 10^exponent honest radii long.
        hostile_FD = 3 * hostile(seed, [exponent], same=True, f=f)
        assert moved(pipeline, seed, hostile_FD) <= max(N**0.5, far)


@pytest.mark.parametrize("before", preaggregators.names())
@pytest.mark.parametrize("exponent", [0.0, 3.0, 9.0, 20.0, 30.0])
def test_influence_stays_bounded_behind_every_pre_aggregator(before: str, exponent: float) -> None:
    for rule in ("trimmed_mean", "geometric_median"):
        pipeline = Pipeline.of([before, rule], f=F)
        for seed in range(3):
            check(pipeline, seed, [exponent, exponent / 2], same=False)
            check(pipeline, seed, [exponent] * F, same=True)


@pytest.mark.parametrize("before", preaggregators.names())
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 20.0])
def test_most_hostile_rows_that_a_preaggregator_tolerates_have_bounded_influence(
    before: str, exponent: float
) -> None:
    largest = LARGEST[preaggregators.get(before).breakdown.partition(";")[0]]
    # `gas` keeps n - f rows, and the rule after it needs n - f > 2f.
    f = (N - 1) // 3 if before == "gas" else largest
    for rule in ("trimmed_mean", "geometric_median"):
        pipeline = Pipeline.of([before, rule], f=f)
        for seed in range(2):
            hostile_FD = 3 * hostile(seed, [exponent], same=True, f=f)
            assert moved(pipeline, seed, hostile_FD) <= N**0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(UNBOUNDED))
def test_rules_declared_without_robustness_can_be_moved_arbitrarily_far(name: str) -> None:
    pipeline = Pipeline.of({"name": name, **NEEDS.get(name, {})}, f=F)
    result = (moved(pipeline, seed, hostile(seed, [12, 12], False)) for seed in range(20))
    assert any(far > 1e6 for far in result), f"{name} is bounded after all: let it say so"
