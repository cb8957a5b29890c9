"""The clustered rule: sizes, ties, weights and zero rows."""

import torch

from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.rules.clustered import Clustered


def test_larger_cluster_by_direction_wins_whatever_the_row_lengths() -> None:
    block_ND = torch.tensor([[1.0, 0.0], [100.0, 1.0], [1.0, 0.1], [-1.0, 0.0], [-5.0, 0.1]])
    torch.testing.assert_close(aggregate(block_ND, "clustered"), block_ND[:3].mean(dim=0))


def test_ties_in_cluster_size_go_to_the_cluster_with_the_lowest_id() -> None:
    block_ND = torch.tensor([[-1.0], [1.0], [-2.0], [2.0]])
    assert float(aggregate(block_ND, "clustered")) == -1.5
    assert float(aggregate(block_ND, "clustered", ids=["d", "a", "c", "b"])) == 1.5
    assert float(aggregate(torch.tensor([[3.0], [-1.0]]), "clustered")) == 3


def test_trusted_weights_count_only_within_the_cluster() -> None:
    block_ND = torch.tensor([[1.0], [4.0], [-9.0]])
    assert float(aggregate(block_ND, "clustered", weights=[2, 1, 50])) == 2


def test_zero_row_is_excluded_from_the_winning_cluster() -> None:
    rows = Rows.of(torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]))
    _, _, report = Clustered().apply(rows, State(), Context())
    assert report.per_row["weight"].tolist() == [0.5, 0, 0.5]


def test_single_row_is_returned_unchanged() -> None:
    assert float(aggregate(torch.tensor([[2.5]]), "clustered")) == 2.5
