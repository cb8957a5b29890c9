"""The contract of all pre-aggregators, alone and in front of every rule."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.robust import Report, Rows, State
from rampart_fl.shared.robust.base import PreAggregator
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules
from tests.contracts.conftest import PREAGGREGATORS, Case

MakeRows = Callable[..., Rows]
F = 2


def run(case: Any, rows: Rows, f: int = F) -> tuple[Rows, State, Report]:
    member = preaggregators.build(case.name, f=f, **case.parameters)
    return member.apply(rows, member.init(rows.dim), case.context(rows.dim))


def values(rows: Rows) -> Tensor:
    """The materialized rows of a view."""
    return torch.cat([chunk_MC.clone() for _, _, chunk_MC in rows.chunks()], dim=1)


def test_result_is_a_view_of_the_unmodified_pool(
    preaggregator: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    before_ND, rows = updates_ND.clone(), make_rows(updates_ND)
    result, _, report = run(preaggregator, rows)
    assert result.block_ND is rows.block_ND and torch.equal(updates_ND, before_ND)
    assert len(result) == len(set(result.ids)) <= len(rows)
    assert result.ids == tuple(sorted(result.ids))
    assert values(result).shape == (len(result), rows.dim) and values(result).isfinite().all()
    assert result.weights_M is None or len(result.weights_M) == len(result)
    assert report.stage == preaggregator.name and report.ids == rows.ids
    assert all(column.shape == (len(rows),) for column in report.per_row.values())


def test_pre_aggregator_declares_whether_it_keeps_rows(
    preaggregator: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    _, state, _ = run(preaggregator, make_rows(updates_ND))
    rows = [name for name, held in state.tensors.items() if held.shape == updates_ND.shape]
    member = preaggregators.build(preaggregator.name, f=F, **preaggregator.parameters)
    assert len(rows) == member.remembers


def test_result_is_bitwise_independent_of_row_order(
    preaggregator: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    ids = [f"{i:02d}" for i in range(len(updates_ND))]
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(4)).tolist()
    result, _, report = run(preaggregator, make_rows(updates_ND, ids))
    shuffled = make_rows(updates_ND[order], [ids[i] for i in order])
    again, _, other = run(preaggregator, shuffled)
    assert result.ids == again.ids
    assert torch.equal(values(result), values(again))
    assert all(torch.equal(report.per_row[name], other.per_row[name]) for name in report.per_row)


def test_identical_rows_stay_identical(preaggregator: Any, make_rows: MakeRows) -> None:
    row_D = 0.1 + torch.arange(40) / 1000
    result, _, _ = run(preaggregator, make_rows(row_D.repeat(11, 1)))
    expected_LD = row_D.repeat(len(result), 1)
    torch.testing.assert_close(values(result), expected_LD)


def test_non_finite_rows_never_reach_the_result(
    preaggregator: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    ids = [f"{i:02d}" for i in range(len(updates_ND))]
    kept = [i for i in range(len(ids)) if i != 3]
    alone = make_rows(updates_ND[kept], [ids[i] for i in kept])
    expected, _, _ = run(preaggregator, alone, f=F - 1)
    for poison in (float("nan"), float("inf")):
        hostile_ND = updates_ND.clone()
        hostile_ND[3, 0] = poison
        result, _, _ = run(preaggregator, make_rows(hostile_ND, ids))
        assert result.dropped == ("03",), poison
        torch.testing.assert_close(values(result), values(expected))


BEHIND = (
    "median",
    "trimmed_mean",
    "geometric_median",
    "caf",
    "mean_around_median",
    "krum",
    "multi_krum",
    "minimum_diameter_averaging",
)
"""Rules that stay robust behind a pre-aggregator that leaves at least 2f + 3 rows."""


@pytest.mark.parametrize("opposite", [False, True])
@pytest.mark.parametrize("magnitude", [1e4, 1e8, 1e9, 1e10, 1e12, 1e15, 1e20, 1e30, 3e38])
def test_rules_behind_a_pre_aggregator_stay_robust(
    preaggregator: Any,
    updates_ND: Tensor,
    make_rows: MakeRows,
    magnitude: float,
    opposite: bool,
) -> None:
    preaggregator.skip("robust")
    hostile_ND = updates_ND.clone()
    good = [i for i in range(11) if i not in (2, 8)]
    centre_D = updates_ND[good].mean(dim=0)
    against_D = -centre_D / centre_D.abs().max()
    hostile_ND[[2, 8]] = magnitude * (
        against_D * torch.tensor([[0.98], [1.0]]) if opposite else updates_ND[[2, 8]].clamp(0.5, 1)
    )
    radius = float((updates_ND[good] - centre_D).norm(dim=1).max())
    mixed, _, _ = run(preaggregator, make_rows(hostile_ND))
    for last in BEHIND if len(mixed) >= 2 * F + 3 else BEHIND[:5]:
        rule = rules.build(last, f=F)
        result_D, _, _ = rule.apply(mixed, rule.init(40), preaggregator.context())
        assert float((result_D - centre_D).norm()) <= preaggregator.spread * radius, last


def test_too_few_rows_succeed_or_raise_an_error_naming_n_and_f(
    preaggregator: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    for n, f in product((1, 2, 3), (0, 3)):
        try:
            result, _, _ = run(preaggregator, make_rows(updates_ND[:n]), f)
        except PreconditionError as error:
            assert f"n={n}" in str(error) and f"f={f}" in str(error)
        else:
            assert values(result).isfinite().all()


def test_misspelt_parameters_are_refused(preaggregator: Any) -> None:
    with pytest.raises(ConfigurationError, match="no_such_parameter"):
        preaggregators.build(preaggregator.name, no_such_parameter=1)


def test_pre_aggregator_documents_its_paper_breakdown_and_costs(preaggregator: Any) -> None:
    member = preaggregators.get(preaggregator.name)
    assert member.paper and member.breakdown and member.complexity and member.passes
    assert member.__doc__ and member.__doc__ != PreAggregator.__doc__


def test_rules_give_the_same_result_for_mixed_and_materialized_rows(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    """After any pre-aggregator, a rule gives the same result as for the materialized rows."""
    if rule.name == "monna":
        pytest.skip("its pivot is a client, and buckets have other names")
    for name in preaggregators.names():
        preaggregator = PREAGGREGATORS.get(name, Case(name))
        mixed, _, _ = run(preaggregator, make_rows(updates_ND.double()), f=1)
        f = 0 if name == "bucketing" else 1
        member, context = rules.build(rule.name, f=f, **rule.parameters), rule.context()
        result_D, _, _ = member.apply(mixed, member.init(40), context)
        written = make_rows(values(mixed), mixed.ids)
        expected_D, _, _ = member.apply(written, member.init(40), context)
        assert torch.allclose(result_D, expected_D, rtol=1e-6, atol=1e-8), name
