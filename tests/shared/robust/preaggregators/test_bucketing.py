"""Bucketing: which rows are averaged, and when the buckets are drawn."""

import pytest
import torch

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.preaggregators import preaggregators

POWERS = (2.0 ** torch.arange(7))[:, None]


def buckets(seed: int = 0, number: int = 0, s: int = 2) -> list[float]:
    rows = Rows.of(POWERS, ids=list("abcdefg"), weights=range(1, 8))
    stage = preaggregators.build("bucketing", s=s)
    mixed, _, _ = stage.apply(rows, State(), Context(round=number, seed=seed))
    return torch.cat([chunk for _, _, chunk in mixed.chunks()])[:, 0].tolist()


def test_every_row_is_in_exactly_one_bucket_of_at_most_s_rows() -> None:
    means = buckets()
    sums = [round(mean * size) for mean, size in zip(means, (2, 2, 2, 1), strict=True)]
    assert [bin(total).count("1") for total in sums] == [2, 2, 2, 1]
    assert sum(sums) == 127


def test_permutation_depends_only_on_seed_and_round() -> None:
    """Other implementations seed inside the aggregation, so every round has the same buckets."""
    drawn = {tuple(buckets(seed, number)) for seed in range(3) for number in range(3)}
    assert len(drawn) == 9
    assert buckets(4, 2) == buckets(4, 2)


def test_bucket_size_one_keeps_the_rows_and_a_single_bucket_is_the_mean() -> None:
    assert sorted(buckets(s=1)) == POWERS[:, 0].tolist()
    assert buckets(s=7) == buckets(s=50) == [pytest.approx(127 / 7)]


def test_bucket_weights_and_metadata_are_averaged() -> None:
    rows = Rows.of(POWERS, weights=range(1, 8), metadata={"loss_gap": range(7)})
    mixed, _, _ = preaggregators.build("bucketing", s=7).apply(rows, State(), Context())
    assert mixed.ids == ("bucket-0",)
    assert mixed.trusted_weights().tolist() == [pytest.approx(4)]
    assert mixed.metadata["loss_gap"].tolist() == [pytest.approx(3)]


def test_f_is_not_reduced_with_the_number_of_rows() -> None:
    stages = ["bucketing", "median"]
    with pytest.raises(PreconditionError, match="more than 2f = 4 buckets of s = 2 rows: n=7, f=2"):
        aggregate(POWERS, stages, f=2)
    unchecked = [{"name": "bucketing", "f": 0}, "median"]
    assert aggregate(POWERS, unchecked, f=2).shape == (1,)
