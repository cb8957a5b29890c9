"""Clustering of a few points, without randomness; ties go to the lower index.

Complete linkage and mean shift are implemented here, because SciPy and scikit-learn would return
other results in three cases. If several distances are equal, for example between identical rows,
SciPy's linkage merges other pairs than this module. If clusters overlap, scikit-learn's mean shift
converges to other peaks than this module. If there are only two or three points, scikit-learn's
bandwidth is 0, so each point becomes a cluster of its own.

Legend: M points, C clusters, F features.
"""

import torch
from torch import Tensor

MOST_STEPS = 300
"""Maximum number of steps of mean shift."""


def complete_linkage(distances_MM: Tensor, clusters: int) -> Tensor:
    """Labels (M,) of agglomerative clusters: 0, 1, ... in the order of the clusters' first points.

    Each step merges the two clusters with the smallest distance between their farthest points,
    until `clusters` clusters remain.

    >>> points = torch.tensor([0.0, 9.0, 1.0, 10.0])
    >>> complete_linkage((points[:, None] - points).abs(), 2)
    tensor([0, 1, 0, 1])
    """
    m = len(distances_MM)
    apart_MM = distances_MM.double().clone().fill_diagonal_(torch.inf)
    labels_M = torch.arange(m)
    for _ in range(max(m - clusters, 0)):
        # If several pairs have equal distances, `argmin` finds the pair with the lowest indices.
        first, second = divmod(int(apart_MM.argmin()), m)
        first, second = min(first, second), max(first, second)
        labels_M[labels_M == second] = first
        joined_M = torch.maximum(apart_MM[first], apart_MM[second])
        joined_M[first] = torch.inf
        apart_MM[first], apart_MM[:, first] = joined_M, joined_M
        apart_MM[second], apart_MM[:, second] = torch.inf, torch.inf
    renumbered_M: Tensor = torch.unique(labels_M, return_inverse=True)[1]
    return renumbered_M


def mean_shift(points_MF: Tensor) -> Tensor:
    """Labels (M,) by mean shift with a flat kernel: 0 for the largest cluster, 1 for the next, ...

    The radius of a point is the smallest distance within which half of all points lie. This half
    includes the point itself and at least one other point. If there are only two points, both are
    therefore in one cluster. If there are only three points, at least two of them are in one
    cluster. The bandwidth is the mean of all points' radii. Every point repeatedly moves to the
    mean of the points within the bandwidth, until it reaches a peak of the density. Peaks that are
    at most one bandwidth apart are merged. Clusters of equal size are ordered by the lowest index
    of their points.

    >>> mean_shift(torch.tensor([[9.0], [0.0], [0.1], [0.2]])).tolist()
    [1, 0, 0, 0]
    >>> mean_shift(torch.tensor([[9.0], [0.0], [0.1]])).tolist()
    [1, 0, 0]
    """
    points_MF = points_MF.double()
    m = len(points_MF)
    reach = min(m, max(2, m // 2))
    bandwidth = float(_apart(points_MF, points_MF).sort(dim=1).values[:, reach - 1].mean())
    # Because of rounding, the mean of equal points or of equal radii may differ from these values
    # in the last bit.
    bandwidth = max(bandwidth * (1 + 1e-9), 1e-9 * float(points_MF.abs().max()))
    peaks_MF = points_MF
    for _ in range(MOST_STEPS):
        near_MM = (_apart(peaks_MF, points_MF) <= bandwidth).double()
        moved_MF = near_MM @ points_MF / near_MM.sum(dim=1, keepdim=True)
        still = bool(((moved_MF - peaks_MF).norm(dim=1) <= 1e-3 * bandwidth).all())
        peaks_MF = moved_MF
        if still:
            break
    heights_M = (_apart(peaks_MF, points_MF) <= bandwidth).sum(dim=1)
    chosen: list[int] = []
    for i in sorted(range(m), key=lambda i: (-int(heights_M[i]), i)):
        if all(float((peaks_MF[i] - peaks_MF[j]).norm()) > bandwidth for j in chosen):
            chosen.append(i)
    owner_M = _apart(points_MF, peaks_MF[chosen]).argmin(dim=1).tolist()
    sizes = {label: (-owner_M.count(label), owner_M.index(label)) for label in set(owner_M)}
    ranks = {label: rank for rank, label in enumerate(sorted(sizes, key=lambda k: sizes[k]))}
    return torch.tensor([ranks[label] for label in owner_M])


def finch(points_MF: Tensor, clusters: int | None = None) -> Tensor:
    """Labels (M,) by FINCH: the first partition, or the partition into `clusters` clusters.

    The first neighbour of a point is the nearest other point. Two points are linked if one is the
    first neighbour of the other, or if both have the same first neighbour. Linked points are in the
    same cluster. Every cluster therefore has at least two points, unless there is only one point in
    total. Each further partition treats the means of the previous clusters as points, and links
    them by the same rule. If the next partition would leave fewer than `clusters` clusters, this
    function merges only the two clusters with the nearest means. Clusters are never split.

    >>> points = torch.tensor([[0.10], [0.11], [0.20], [0.21], [0.02], [0.03]])
    >>> finch(points), finch(points, clusters=2)
    (tensor([0, 0, 1, 1, 2, 2]), tensor([0, 0, 1, 1, 0, 0]))
    """
    points_MF = points_MF.double()
    labels_M = _first_neighbours(points_MF)
    while clusters is not None and (count := int(labels_M.max()) + 1) > clusters:
        means_CF = torch.stack([points_MF[labels_M == c].mean(dim=0) for c in range(count)])
        next_C = _first_neighbours(means_CF)
        if int(next_C.max()) + 1 < clusters:
            apart_CC = _apart(means_CF, means_CF).fill_diagonal_(torch.inf)
            one, other = divmod(int(apart_CC.argmin()), count)
            next_C = torch.arange(count)
            next_C[max(one, other)] = min(one, other)
            next_C = torch.unique(next_C, return_inverse=True)[1]
        labels_M = next_C[labels_M]
    return labels_M


def _first_neighbours(points_MF: Tensor) -> Tensor:
    """Labels (M,) of clusters; points that are connected through first neighbours share a
    cluster."""
    m = len(points_MF)
    if m == 1:
        return torch.zeros(1, dtype=torch.long)
    first_M = _apart(points_MF, points_MF).fill_diagonal_(torch.inf).argmin(dim=1)
    # Two points that share a first neighbour are connected through this neighbour.
    linked_MM = torch.zeros(m, m, dtype=torch.bool)
    linked_MM[torch.arange(m), first_M.cpu()] = True
    return _components(linked_MM)


def two_means(points_M: Tensor) -> Tensor:
    """Labels (M,) of the best split of M numbers into two clusters; the first number has label 0.

    The result is exact, because every split of the sorted values is tried; ties go to the split
    at the lowest value. If all values are equal, there is only one cluster.

    >>> two_means(torch.tensor([1.0, 9.0, 1.5, 8.0]))
    tensor([0, 1, 0, 1])
    """
    ordered_M, order_M = points_M.double().sort(stable=True)
    labels_M = torch.zeros(len(points_M), dtype=torch.long)
    if not len(points_M) or float(ordered_M[0]) == float(ordered_M[-1]):
        return labels_M

    def scatter(part: Tensor) -> float:
        return float((part - part.mean()).square().sum())

    cuts = range(1, len(points_M))
    best = min(cuts, key=lambda cut: scatter(ordered_M[:cut]) + scatter(ordered_M[cut:]))
    labels_M[order_M[best:]] = 1
    return labels_M if int(labels_M[0]) == 0 else 1 - labels_M


def dbscan(points_MF: Tensor, radius: float, least: int) -> Tensor:
    """Labels (M,) by DBSCAN; a point that belongs to no cluster becomes a cluster of its own.

    A point is a core if at least `least` points, including the point itself, are within `radius`.
    Cores within `radius` of each other are in the same cluster. A point that is not a core joins
    the cluster of a core that is within `radius`.

    >>> dbscan(torch.tensor([[0.0], [1.0], [2.0], [9.0]]), radius=1.0, least=2)
    tensor([0, 0, 0, 1])
    """
    from sklearn.cluster import DBSCAN

    apart_MM = _apart(points_MF.double(), points_MF.double()).cpu().numpy()
    method = DBSCAN(eps=radius, min_samples=least, metric="precomputed")
    labels_M = torch.from_numpy(method.fit_predict(apart_MM)).long()
    alone_M = labels_M < 0
    labels_M[alone_M] = len(labels_M) + torch.arange(int(alone_M.sum()))
    return _in_order(labels_M)


def _components(linked_MM: Tensor) -> Tensor:
    """Connected components (M,) of a graph: labels in the order of their first points."""
    from scipy.sparse.csgraph import connected_components

    _, labels_M = connected_components(linked_MM.numpy(), directed=False)
    return _in_order(torch.from_numpy(labels_M).long())


def _in_order(labels_M: Tensor) -> Tensor:
    """Renumbers clusters 0, 1, ... in the order of their first points."""
    first_M = (labels_M[:, None] == labels_M).int().argmax(dim=1)
    renumbered_M: Tensor = torch.unique(first_M, return_inverse=True)[1]
    return renumbered_M


def _apart(left_MF: Tensor, right_MF: Tensor) -> Tensor:
    return torch.cdist(left_MF, right_MF, compute_mode="donot_use_mm_for_euclid_dist")
