"""SignGuard: both filters, the clipping, and the result if no row is left."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.rules.sign_guard import SignGuard

ALL = {"name": "sign_guard", "fraction": 1.0}


def test_norm_filter_runs_before_clipping() -> None:
    # The median length is 2: 1 is kept, 4 is kept and clipped, 8 is too long, 0.1 is too short.
    block_ND = torch.tensor([[1.0], [2.0], [2.0], [4.0], [8.0], [0.1], [2.0]])
    _, _, report = SignGuard(fraction=1).apply(Rows.of(block_ND), State(), Context())
    expected = torch.tensor([1.0, 1.0, 1.0, 0.5, 0.0, 0.0, 1.0], dtype=torch.float64) / 5
    torch.testing.assert_close(report.per_row["weight"], expected)
    assert float(aggregate(block_ND, ALL)) == pytest.approx((1 + 2 + 2 + 2 + 2) / 5)
    assert report.values["median_norm"] == 2


def test_rows_with_flipped_signs_are_excluded() -> None:
    draws = torch.Generator().manual_seed(0)
    honest_ND = 0.5 + torch.randn(7, 200, generator=draws)
    result_D = aggregate(torch.cat([honest_ND, -honest_ND[:3]]), ALL, f=3)
    _, _, report = SignGuard(fraction=1).apply(
        Rows.of(torch.cat([honest_ND, -honest_ND[:3]])), State(), Context()
    )
    assert (report.per_row["weight"][7:] == 0).all() and (report.per_row["weight"][:7] > 0).all()
    assert float(result_D @ honest_ND.mean(dim=0)) > 0


def test_of_three_rows_the_row_with_flipped_signs_is_excluded() -> None:
    draws = torch.Generator().manual_seed(0)
    honest_ND = 0.5 + torch.randn(2, 200, generator=draws)
    result_D = aggregate(torch.cat([-honest_ND[:1], honest_ND]), ALL, f=1)
    median = float(honest_ND[0].norm())
    clipped_ND = honest_ND * (median / honest_ND.norm(dim=1)).clamp(max=1)[:, None]
    torch.testing.assert_close(result_D, clipped_ND.mean(dim=0))


def test_two_rows_have_the_same_weight() -> None:
    rows = Rows.of(torch.tensor([[3.0, -4.0], [3.0, 4.0]]))
    result_D, _, report = SignGuard(fraction=1).apply(rows, State(), Context())
    assert report.per_row["weight"].tolist() == [0.5, 0.5]
    assert result_D.tolist() == [3, 0]


def test_result_is_never_longer_than_the_median_norm() -> None:
    draws = torch.Generator().manual_seed(1)
    block_ND = torch.randn(9, 50, generator=draws) * torch.rand(9, 1, generator=draws) * 10
    result_D = aggregate(block_ND, ALL)
    assert float(result_D.norm()) <= float(block_ND.norm(dim=1).median()) + 1e-5


def test_no_update_if_the_two_filters_keep_no_common_row() -> None:
    # The largest cluster consists of the two rows that fail the length filter.
    block_ND = torch.tensor([[0.01, 0.01], [90.0, 90.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 0.0]])
    _, _, report = SignGuard(fraction=1, lower=0.5, upper=0.9).apply(
        Rows.of(block_ND), State(), Context()
    )
    assert not report.per_row["weight"].any()
    assert not aggregate(block_ND, {**ALL, "lower": 0.5, "upper": 0.9}).any()


def test_all_zero_rows_give_zero() -> None:
    assert not aggregate(torch.zeros(4, 3), ALL).any()


def test_sampled_coordinates_do_not_matter_if_all_rows_share_one_sign_pattern() -> None:
    block_ND = torch.ones(6, 1000) * torch.linspace(1, 2, 6)[:, None]
    torch.testing.assert_close(
        aggregate(block_ND, "sign_guard"), aggregate(block_ND, ALL), rtol=0, atol=0
    )


def test_lower_bound_above_the_upper_bound_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="lower"):
        rules.build("sign_guard", lower=2.0, upper=1.0)
