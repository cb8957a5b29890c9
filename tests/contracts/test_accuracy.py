"""Every rule at a million coordinates: float32 rows give what float64 arithmetic gives."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Report, Rows
from rampart_fl.shared.robust.rules import rules

N, F, D = 12, 2, 1_000_000


@cache
def models(deviation: float) -> Rows:
    """Models of norm 60 plus updates whose norms lie between half the deviation and all of it."""
    draws = torch.Generator().manual_seed(11)
    base_D = torch.randn(D, generator=draws)
    block_ND = torch.randn(N, D, generator=draws)
    block_ND *= (deviation * (1 + torch.arange(N) / N) / 2 / block_ND.norm(dim=1))[:, None]
    block_ND += base_D * (60 / base_D.norm())
    return rows_of(block_ND)


@cache
def wide(deviation: float) -> Rows:
    return rows_of(models(deviation).block_ND.double())


def rows_of(block_ND: Tensor) -> Rows:
    gaps = torch.linspace(0, 1, N, dtype=torch.float64)
    return Rows.of(block_ND, metadata={"loss_gap": gaps})


def run(case: Any, rows: Rows) -> tuple[Tensor, Report]:
    member = rules.build(case.name, f=F, **case.parameters)
    result_D, _, report = member.apply(rows, member.init(D), case.context(D))
    return result_D, report


@pytest.mark.parametrize("deviation", [0.5, 0.01])
@pytest.mark.slow
def test_float32_rows_give_the_float64_result_and_selection(rule: Any, deviation: float) -> None:
    rule.skip("precision")
    found_D, result = run(rule, models(deviation))
    exact_D, exact = run(rule, wide(deviation))
    assert float((found_D.double() - exact_D).norm() / exact_D.norm()) <= 1e-5
    for name in ("weight", "pick"):
        if name in exact.per_row:
            assert torch.equal(result.per_row[name] > 0, exact.per_row[name] > 0)
