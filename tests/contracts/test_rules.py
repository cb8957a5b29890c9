"""The contract of all aggregation rules."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.robust import Report, Rows, State, aggregate
from rampart_fl.shared.robust.base import Rule
from rampart_fl.shared.robust.rules import rules

MakeRows = Callable[..., Rows]
F = 2


def build(rule: Any, f: int = F) -> Rule:
    return rules.build(rule.name, f=f, **rule.parameters)


def run(rule: Any, rows: Rows, f: int = F) -> tuple[Tensor, State, Report]:
    member = build(rule, f)
    return member.apply(rows, member.init(rows.dim), rule.context(rows.dim))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_result_is_a_new_finite_vector_in_the_rows_dtype(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows, dtype: torch.dtype
) -> None:
    block_ND = updates_ND.to(dtype)
    before_ND = block_ND.clone()
    rows = make_rows(block_ND)
    result_D, _, report = run(rule, rows)
    assert result_D.shape == (rows.dim,) and result_D.dtype == dtype
    assert result_D.isfinite().all()
    assert torch.equal(block_ND, before_ND)
    result_D.fill_(7)
    assert torch.equal(block_ND, before_ND), "the result is a view of its input"
    assert report.stage == rule.name and report.ids == rows.ids
    assert all(column.shape == (len(rows),) for column in report.per_row.values())


def test_rule_does_not_modify_context_or_state(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    rows, member, context = make_rows(updates_ND), build(rule), rule.context()
    _, state, _ = member.apply(rows, member.init(rows.dim), context)
    held = {name: tensor.clone() for name, tensor in state.tensors.items()}
    first = member.apply(rows, state, context)
    second = member.apply(rows, state, context)
    assert torch.equal(context.server_update_D, rule.context().server_update_D)
    assert all(torch.equal(state.tensors[name], tensor) for name, tensor in held.items())
    assert torch.equal(first[0], second[0])
    for name, tensor in first[1].tensors.items():
        assert torch.equal(tensor, second[1].tensors[name])


def test_rule_declares_whether_it_keeps_rows(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    _, state, _ = run(rule, make_rows(updates_ND))
    rows = [name for name, held in state.tensors.items() if held.shape == updates_ND.shape]
    assert len(rows) == build(rule).remembers


def test_result_is_the_same_if_the_caller_disables_gradients(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    expected_D, _, _ = run(rule, make_rows(updates_ND))
    with torch.no_grad():
        result_D, _, _ = run(rule, make_rows(updates_ND))
    assert torch.equal(result_D, expected_D) and not result_D.requires_grad


def test_result_with_ids_does_not_depend_on_row_order(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    ids = [f"{i:02d}" for i in range(len(updates_ND))]
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(1)).tolist()
    result_D, _, report = run(rule, make_rows(updates_ND, ids))
    shuffled_D, _, again = run(rule, make_rows(updates_ND[order], [ids[i] for i in order]))
    assert torch.equal(result_D, shuffled_D)
    assert report.ids == again.ids
    assert all(torch.equal(report.per_row[name], again.per_row[name]) for name in report.per_row)


def test_identical_rows_give_that_row(rule: Any, make_rows: MakeRows) -> None:
    rule.skip("identical")
    row_D = torch.ones(40) + torch.arange(40) / 100
    result_D, _, _ = run(rule, make_rows(row_D.repeat(11, 1)))
    torch.testing.assert_close(result_D, row_D, rtol=1e-5, atol=1e-6)


def test_non_finite_rows_never_reach_the_result(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    rule.skip("dropped")
    ids = [f"{i:02d}" for i in range(len(updates_ND))]
    kept = [i for i in range(len(ids)) if i != 3]
    expected_D, _, _ = run(rule, make_rows(updates_ND[kept], [ids[i] for i in kept]), f=F - 1)
    for poison in (float("nan"), float("inf"), -float("inf")):
        hostile_ND = updates_ND.clone()
        hostile_ND[3, 0] = poison
        rows = make_rows(hostile_ND, ids)
        assert rows.dropped == ("03",), poison
        result_D, _, _ = run(rule, rows)
        torch.testing.assert_close(result_D, expected_D)


def test_aggregate_drops_the_same_non_finite_rows_as_a_check_beforehand(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    """`aggregate` looks for such rows only while it reads the pool."""
    ids = [f"{i:02d}" for i in range(len(updates_ND))]
    stage, gaps = {"name": rule.name, **rule.parameters}, {"loss_gap": torch.ones(len(ids))}
    for poison, at in product((float("nan"), float("inf"), -float("inf"), 0.5), (0, 39)):
        hostile_ND = updates_ND.clone()
        hostile_ND[3, at] = poison
        found_D = aggregate(
            hostile_ND, stage, f=F, ids=ids, metadata=gaps, context=rule.context(len(updates_ND[0]))
        )
        expected_D, _, _ = run(rule, make_rows(hostile_ND, ids))
        assert torch.equal(found_D, expected_D), (poison, at)


@pytest.mark.parametrize("where", [(9, 10), (0, 1), (4, 7)])
def test_f_hostile_rows_of_any_magnitude_have_bounded_influence(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows, where: tuple[int, ...]
) -> None:
    rule.skip("robust")
    if "00" in rule.parameters.values() and 0 in where:
        pytest.skip("its pivot is trusted")
    good = [i for i in range(len(updates_ND)) if i not in where]
    centre_D = updates_ND[good].mean(dim=0)
    radius = float((updates_ND[good] - centre_D).norm(dim=1).max())
    for magnitude in (1e1, 1e4, 1e10, 1e20, 1e30, -1e30, 3e38):
        hostile_ND = updates_ND.clone()
        hostile_ND[list(where)] = magnitude * updates_ND[list(where)].clamp(0.5, 1)
        result_D, _, _ = run(rule, make_rows(hostile_ND))
        assert float((result_D - centre_D).norm()) <= rule.spread * radius, magnitude


def test_claimed_weights_do_not_increase_influence(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    rule.skip("robust")
    rule.skip("weights")
    hostile_ND = updates_ND.clone()
    hostile_ND[[4, 7]] = 1e30
    rows = make_rows(hostile_ND)
    claimed = replace(rows, weights_M=torch.ones(11, dtype=torch.float64))
    claimed.weights_M[[4, 7]] = 1e9
    good = [i for i in range(11) if i not in (4, 7)]
    centre_D = updates_ND[good].mean(dim=0)
    radius = float((updates_ND[good] - centre_D).norm(dim=1).max())
    result_D, _, _ = run(rule, claimed)
    assert float((result_D - centre_D).norm()) <= rule.spread * radius


def test_mixed_rows_give_the_same_result_as_materialized_rows(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    draws = torch.Generator().manual_seed(8)
    mix_MM = torch.rand(11, 11, generator=draws, dtype=torch.float64).square()
    for scale in (1 / mix_MM.sum(dim=1), torch.full((11,), 0.1, dtype=torch.float64)):
        by_MM = scale[:, None] * mix_MM
        mixed_D, _, _ = run(rule, make_rows(updates_ND.double()).mixed(by_MM))
        plain_D, _, _ = run(rule, make_rows(by_MM @ updates_ND.double()))
        torch.testing.assert_close(mixed_D, plain_D, rtol=1e-6, atol=1e-8)


def test_selected_rows_give_the_same_result_as_copied_rows(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    picks = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]
    kept_D, _, _ = run(rule, make_rows(updates_ND).keep(picks), f=1)
    ids = [f"{i:02d}" for i in picks]
    alone_D, _, _ = run(rule, make_rows(updates_ND[picks], ids), f=1)
    torch.testing.assert_close(kept_D, alone_D)


def test_too_few_rows_succeed_or_raise_an_error_naming_n_and_f(
    rule: Any, updates_ND: Tensor, make_rows: MakeRows
) -> None:
    for n, f in product((1, 2, 3), (0, 3)):
        rows = make_rows(updates_ND[:n], [f"{i:02d}" for i in range(n)])
        try:
            result_D, _, _ = run(rule, rows, f)
        except PreconditionError as error:
            assert f"n={n}" in str(error) and f"f={f}" in str(error)
        else:
            assert result_D.isfinite().all()


def test_misspelt_and_negative_parameters_are_refused(rule: Any) -> None:
    with pytest.raises(ConfigurationError, match="no_such_parameter"):
        rules.build(rule.name, no_such_parameter=1)
    with pytest.raises(ConfigurationError, match="f: Input should be greater"):
        rules.build(rule.name, f=-1)


def test_close_rows_far_from_zero_give_the_float64_result(rule: Any, make_rows: MakeRows) -> None:
    rule.skip("precision")
    draws = torch.Generator().manual_seed(2)
    base_D = torch.randn(5000, generator=draws)
    base_D *= 60 / base_D.norm()
    for deviation in (0.5, 0.01):
        noise_ND = torch.randn(11, 5000, generator=draws)
        noise_ND *= (
            deviation * (1 + torch.arange(11) / 11)[:, None] / noise_ND.norm(dim=1, keepdim=True)
        )
        block_ND = base_D + noise_ND
        single_D, _, _ = run(rule, make_rows(block_ND))
        double_D, _, _ = run(rule, make_rows(block_ND.double()))
        error = float((single_D.double() - double_D).norm() / double_D.norm())
        assert error <= 1e-5


def test_rule_documents_its_paper_breakdown_and_costs(rule: Any) -> None:
    member = rules.get(rule.name)
    assert member.paper and member.breakdown and member.complexity and member.passes
    assert member.__doc__ and member.__doc__ != Rule.__doc__
