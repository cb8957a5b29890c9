"""Clustering, checked against scikit-learn and by hand.

Only the tests that need scikit-learn or SciPy import them: it takes a second.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.robust.clustering import (
    complete_linkage,
    dbscan,
    finch,
    mean_shift,
    two_means,
)


def partition(labels: list[int]) -> set[frozenset[int]]:
    return {frozenset(i for i, own in enumerate(labels) if own == k) for k in set(labels)}


@given(st.integers(2, 15), st.integers(1, 4), st.integers(0, 10_000))
def test_complete_linkage_agrees_with_scikit_learn(m: int, clusters: int, seed: int) -> None:
    from sklearn.cluster import AgglomerativeClustering

    draws = torch.Generator().manual_seed(seed)
    points_MF = torch.randn(m, 3, generator=draws, dtype=torch.float64)
    apart_MM = (points_MF[:, None] - points_MF[None]).norm(dim=2)
    clusters = min(clusters, m)
    peer = AgglomerativeClustering(clusters, metric="precomputed", linkage="complete")
    expected = peer.fit_predict(apart_MM.numpy()).tolist()
    assert partition(complete_linkage(apart_MM, clusters).tolist()) == partition(expected)


def test_complete_linkage_breaks_ties_by_the_lowest_pair() -> None:
    apart_MM = torch.ones(4, 4) - torch.eye(4)
    assert complete_linkage(apart_MM, 3).tolist() == [0, 0, 1, 2]
    assert complete_linkage(apart_MM, 1).tolist() == [0, 0, 0, 0]
    assert complete_linkage(torch.zeros(1, 1), 2).tolist() == [0]


@pytest.mark.parametrize("seed", range(10))
def test_mean_shift_agrees_with_scikit_learn(seed: int) -> None:
    from sklearn.cluster import MeanShift

    draws = torch.Generator().manual_seed(seed)
    points_MF = torch.rand(8, 3, generator=draws, dtype=torch.float64) * 0.1
    points_MF = torch.cat([points_MF, points_MF[:7] + 3])
    near = torch.cdist(points_MF, points_MF).sort(dim=1).values[:, 15 // 2 - 1]
    peer = MeanShift(bandwidth=float(near.mean())).fit_predict(points_MF.numpy())
    assert partition(mean_shift(points_MF).tolist()) == partition(peer.tolist())


def test_mean_shift_orders_labels_by_cluster_size_then_by_lowest_point() -> None:
    points_MF = torch.tensor([[50.0], [0.0], [1.0], [51.0], [2.0]])
    assert mean_shift(points_MF).tolist() == [1, 0, 0, 1, 0]
    assert mean_shift(torch.ones(3, 2)).tolist() == [0, 0, 0]


def test_mean_shift_joins_at_least_two_of_three_points() -> None:
    assert mean_shift(torch.tensor([[5.0]])).tolist() == [0]
    assert mean_shift(torch.tensor([[5.0], [0.0]])).tolist() == [0, 0]
    assert mean_shift(torch.tensor([[5.0], [0.0], [1.0]])).tolist() == [1, 0, 0]
    draws = torch.Generator().manual_seed(4)
    for _ in range(200):
        labels = mean_shift(torch.rand(3, 3, generator=draws, dtype=torch.float64)).tolist()
        assert labels.count(0) >= 2


@pytest.mark.parametrize("size", [0.015, 0.041, 0.062, 1.0])
def test_rounding_does_not_separate_three_points_at_equal_distances(size: float) -> None:
    """In float64, the mean of three equal distances may be smaller than the distances."""
    assert mean_shift(size * torch.eye(3, dtype=torch.float64)).tolist() == [0, 0, 0]


def numbers(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.10, 0.11, 0.13, 0.16, 0.02, 0.03], [0, 0, 0, 0, 1, 1]),
        ([0.10, 0.101, 0.14, 0.141, 0.02, 0.021], [0, 0, 1, 1, 2, 2]),
        ([0.10, 0.11, 0.12, 0.13, 0.01], [0, 0, 0, 0, 0]),
        ([0.2] * 5, [0] * 5),
        ([0.12, 0.13, 0.15, 0.18, 0.22, 0.20], [0, 0, 0, 1, 1, 1]),
        ([0.7], [0]),
    ],
)
def test_finch_equals_hand_computed_labels(values: list[float], labels: list[int]) -> None:
    assert finch(numbers(values)).tolist() == labels


def linked(groups: list[frozenset[int]], values: list[float]) -> list[frozenset[int]]:
    """The next partition by its definition: each group is joined with its first neighbour."""
    means = [sum(values[i] for i in group) / len(group) for group in groups]
    k = len(groups)
    if k == 1:
        return groups
    first = [min((abs(means[i] - means[j]), j) for j in range(k) if j != i)[1] for i in range(k)]
    joined = [{i} for i in range(k)]
    for i in range(k):
        for j in range(k):
            if i != j and (first[i] == j or first[j] == i or first[i] == first[j]):
                mine, theirs = (next(g for g in joined if x in g) for x in (i, j))
                if mine is not theirs:
                    joined.remove(theirs)
                    mine |= theirs
    joined.sort(key=min)
    return [frozenset().union(*(groups[i] for i in group)) for group in joined]


@given(st.lists(st.integers(0, 50), min_size=2, max_size=12))
def test_finch_follows_its_definition_and_leaves_no_singletons(values: list[int]) -> None:
    numbers_M = [float(v) for v in values]
    result = partition(finch(numbers(numbers_M)).tolist())
    assert result == set(linked([frozenset([i]) for i in range(len(values))], numbers_M))
    assert all(len(group) > 1 for group in result)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=24, unique=True), st.integers(1, 5))
def test_finch_merges_up_its_hierarchy_to_the_requested_cluster_count(
    values: list[int], k: int
) -> None:
    numbers_M = [float(v) for v in values]
    groups = linked([frozenset([i]) for i in range(len(values))], numbers_M)
    while len(groups) > k:
        above = linked(groups, numbers_M)
        if len(above) < k:
            means = [sum(numbers_M[i] for i in group) / len(group) for group in groups]
            pairs = [(abs(a - b), i, j) for i, a in enumerate(means) for j, b in enumerate(means)]
            _, i, j = min(pair for pair in pairs if pair[1] < pair[2])
            groups[i] |= groups.pop(j)
        else:
            groups = above
    assert partition(finch(numbers(numbers_M), k).tolist()) == set(groups)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        # Of three pairs, the two with the nearest means are joined.
        ([0.10, 0.101, 0.14, 0.141, 0.02, 0.021], [0, 0, 0, 0, 1, 1]),
        # The two hostile pairs are each other's neighbours, as are the two honest pairs.
        ([0.2, 0.21, 0.24, 0.26, 0.0195, 0.0194, 0.0206, 0.0205], [0, 0, 0, 0, 1, 1, 1, 1]),
        # A single cluster is never split.
        ([0.10, 0.11, 0.12, 0.13, 0.01], [0, 0, 0, 0, 0]),
        ([0.7], [0]),
    ],
)
def test_finch_with_two_clusters_equals_hand_computed_labels(
    values: list[float], labels: list[int]
) -> None:
    assert finch(numbers(values), clusters=2).tolist() == labels


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=9))
def test_two_means_has_the_least_scatter_of_all_splits(values: list[float]) -> None:
    def scatter(labels: list[int]) -> float:
        parts = [[v for v, own in zip(values, labels, strict=True) if own == k] for k in (0, 1)]
        return sum(sum((v - sum(p) / len(p)) ** 2 for v in p) for p in parts if p)

    labels = two_means(torch.tensor(values, dtype=torch.float64)).tolist()
    assert labels[0] == 0
    every = [[number >> i & 1 for i in range(len(values))] for number in range(2 ** len(values))]
    assert scatter(labels) <= min(map(scatter, every)) + 1e-6


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 4))
def test_dbscan_agrees_with_scikit_learn_except_at_border_points(
    values: list[int], least: int
) -> None:
    from sklearn.cluster import DBSCAN

    points_MF = numbers([float(v) for v in values])
    radius = 2.5
    labels = dbscan(points_MF, radius, least).tolist()
    peer = DBSCAN(eps=radius, min_samples=least).fit(points_MF.numpy())
    cores = peer.core_sample_indices_.tolist()
    assert partition([labels[i] for i in cores]) == partition([int(peer.labels_[i]) for i in cores])
    for i, label in enumerate(peer.labels_.tolist()):
        if label == -1:
            assert labels.count(labels[i]) == 1
        elif i not in cores:
            near = [c for c in cores if abs(values[i] - values[c]) <= radius]
            assert labels[i] in {labels[c] for c in near}


def test_dbscan_numbers_clusters_by_their_first_points() -> None:
    points_MF = numbers([9.0, 5.0, 0.0, 5.5, 0.5, 20.0])
    assert dbscan(points_MF, radius=1.0, least=2).tolist() == [0, 1, 2, 1, 2, 3]


def test_scipy_linkage_breaks_ties_differently() -> None:
    """This is why we have our own linkage. If SciPy ever joins the same pairs, ours can go."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    differ = 0
    draws = torch.Generator().manual_seed(0)
    for _ in range(50):
        points_MF = torch.randint(4, (12, 2), generator=draws).double()
        apart_MM = torch.cdist(points_MF, points_MF)
        tree = linkage(squareform(apart_MM.numpy(), checks=False), "complete")
        theirs = fcluster(tree, 2, "maxclust").tolist()
        differ += partition(complete_linkage(apart_MM, 2).tolist()) != partition(theirs)
    assert differ


@pytest.mark.parametrize("count", [3, 5, 6, 7])
def test_mean_shift_separates_two_groups_of_equal_points(count: int) -> None:
    """Their bandwidth is 0, and the mean of equal points may differ from them in the last bit."""
    points_MF = torch.tensor([[0.1, 0.7]] * count + [[0.9, 0.3]] * count, dtype=torch.float64)
    assert mean_shift(points_MF).tolist() == [0] * count + [1] * count
