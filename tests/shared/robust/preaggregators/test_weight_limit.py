"""The limit on weights: what it changes, and what false claims still gain."""

import pytest
import torch

from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.preaggregators import preaggregators

LIMITED = [{"name": "weight_limit", "times": 2}, "weighted_mean"]


def weights_after(weights: list[float] | None, times: float = 2.0) -> list[float]:
    rows = Rows.of(torch.eye(len(weights or [1, 1])), weights=weights)
    stage = preaggregators.build("weight_limit", times=times)
    limited, _, report = stage.apply(rows, State(), Context())
    before_M = rows.trusted_weights()
    torch.testing.assert_close(
        limited.trusted_weights(), before_M * report.per_row["factor"], rtol=1e-15, atol=0
    )
    return limited.trusted_weights().tolist()


def test_weights_above_a_multiple_of_the_median_are_lowered_to_it() -> None:
    assert weights_after([1, 10, 20, 30, 500]) == [1, 10, 20, 30, 40]
    assert weights_after([1, 10, 20, 30, 500], times=1) == [1, 10, 20, 20, 20]


def test_of_an_even_number_of_rows_the_lower_middle_weight_counts() -> None:
    assert weights_after([10, 20, 1000, 1000], times=1.5) == [10, 20, 30, 30]


def test_rows_without_weights_keep_equal_weights() -> None:
    assert weights_after(None) == [1, 1]


def test_rows_themselves_are_neither_copied_nor_changed() -> None:
    rows = Rows.of(torch.eye(3), weights=[1, 2, 30])
    limited, _, _ = preaggregators.build("weight_limit").apply(rows, State(), Context())
    assert limited.block_ND is rows.block_ND and limited.ids == rows.ids
    assert limited.mix_MK is rows.mix_MK and limited.index_K is rows.index_K


@pytest.mark.parametrize("claim", [1.0, 70.0, 1e4, 1e9])
def test_claims_of_a_minority_cannot_gain_more_than_the_limit(claim: float) -> None:
    """Six of 20 clients attack, as in the benchmark of claims; honest clients have 40 to 70."""
    draws = torch.Generator().manual_seed(8)
    honest_M = torch.randint(40, 71, (14,), generator=draws).double()
    weights = [*honest_M.tolist(), *[claim] * 6]
    hostile = torch.tensor([0.0] * 14 + [1.0] * 6)[:, None]
    share = float(aggregate(hostile, LIMITED, weights=weights))
    largest = 6 * 2 * 70 / (6 * 2 * 70 + float(honest_M.sum()))
    assert share <= largest + 1e-6
    alone = float(aggregate(hostile, ["weighted_mean"], weights=weights))
    assert alone > 0.98 if claim >= 1e4 else alone <= largest


@pytest.mark.parametrize("times", [0.5, 0, float("nan"), "much"])
def test_limits_below_the_median_are_refused(times: object) -> None:
    with pytest.raises(Exception, match="times"):
        preaggregators.build("weight_limit", times=times)
