"""Distances between rows, computed from a Gram matrix relative to a central row.

Legend: M rows of the view, K rows of the pool that the view reads, S rows of a cluster,
D coordinates.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rampart_fl.shared.robust.linalg.ordering import median
from rampart_fl.shared.robust.linalg.products import gram, norms
from rampart_fl.shared.robust.linalg.views import unmixed
from rampart_fl.shared.robust.pool_statistics import Geometry, PoolStatistics
from rampart_fl.shared.robust.view import View

NEAR = 1e-2
"""Two rows are near if their squared distance is below this share of each row's squared distance to
the centre. If the centre is distant, float32 products leave too few significant digits of the
distance between two near rows. The distance between near rows is therefore computed again with a
nearer centre."""
OFF_CENTRE = 25.0
"""The best row is the row with the smallest median squared distance to the other rows. If the
centre's median squared distance is more than `OFF_CENTRE` times that of the best row, the best row
becomes the centre."""
SAMPLE, PIECES = 2048, 32
"""The row nearest to the coordinate-wise median is estimated from `SAMPLE` coordinates, which are
taken from `PIECES` contiguous blocks."""


def squared_distances(rows: View) -> Tensor:
    """Squared distances |row_i - row_j|² (M, M), float64 on the CPU, symmetric, diagonal 0.

    >>> from rampart_fl.shared.robust import Rows
    >>> squared_distances(Rows.of(torch.tensor([[0.0, 0.0], [3.0, 4.0]])))
    tensor([[ 0., 25.],
            [25.,  0.]], dtype=torch.float64)
    """
    return geometry(rows).squared_MM


def geometry(rows: View) -> Geometry:
    """Distances and inner products of a view's rows.

    The geometry of the pool's rows is measured only once. If each row of the view is a weighted
    mean of the pool's rows, the view's geometry is computed from the geometry of the pool's rows. A
    view that scales rows is measured separately, because it may scale down a huge row. Distances
    that were computed from the unscaled inner products of this row would consist of rounding
    errors.
    """
    if rows.mix_MK is None:
        return _pool(rows)
    if bool(((rows.mix_MK.sum(dim=1) - 1).abs() > 1e-12).any()):
        return _measure(rows)
    gram_KK, by_MK = _pool(unmixed(rows)).gram_MM, rows.mix_MK
    # A row at an infinite distance must not affect a mixed row if its coefficient in the mixed row
    # is 0.
    known_K = gram_KK.diagonal().isfinite()
    gram_MM = by_MK[:, known_K] @ gram_KK[known_K][:, known_K] @ by_MK[:, known_K].T
    lost_M = (by_MK[:, ~known_K] != 0).any(dim=1)
    gram_MM[lost_M] = torch.inf
    gram_MM[:, lost_M] = torch.inf
    # NNM often makes equal rows. A matrix product may round the entries of equal rows differently,
    # so every row gets the entries of the first row that equals it.
    first: dict[bytes, int] = {}
    equal_M = [first.setdefault(by_K.tobytes(), i) for i, by_K in enumerate(by_MK.numpy())]
    gram_MM = gram_MM[equal_M][:, equal_M]
    return Geometry((gram_MM + gram_MM.T) / 2, _distances(gram_MM))


def _pool(plain: View) -> Geometry:
    wanted = tuple(range(len(plain))) if plain.index_K is None else tuple(plain.index_K.tolist())
    statistics = plain.pool_statistics
    known, geometry = statistics.positions, statistics.geometry
    if geometry is not None and known == wanted:
        return geometry
    if geometry is not None and set(wanted) <= set(known):
        at = torch.tensor([known.index(row) for row in wanted], dtype=torch.long)
        return Geometry(geometry.gram_MM[at][:, at], geometry.squared_MM[at][:, at])
    geometry = _measure(plain)
    statistics.positions, statistics.geometry = wanted, geometry
    return geometry


def _measure(rows: View) -> Geometry:
    centre = _middle(rows)
    gram_MM = gram(rows, centre)
    squared_MM = _distances(gram_MM)
    radii_M = squared_MM.sort(dim=1).values[:, len(squared_MM) // 2]
    best = int(radii_M.argsort(stable=True)[0])
    if radii_M[centre] > OFF_CENTRE * radii_M[best]:
        centre = best
        gram_MM = gram(rows, centre)
        squared_MM = _distances(gram_MM)
    near_MM = _near(gram_MM, squared_MM)
    for cluster in _clusters(near_MM):
        at = torch.tensor(cluster)
        within = near_MM[at][:, at]
        squared_MM[at[:, None], at] = torch.where(
            within, _refined(rows.keep(cluster)), squared_MM[at[:, None], at]
        )
    squares_M = gram_MM.diagonal()
    by_distance_MM = (squares_M[:, None] + squares_M[None, :] - squared_MM) / 2
    return Geometry(torch.where(near_MM, by_distance_MM, gram_MM), squared_MM)


def _refined(rows: View) -> Tensor:
    """Squared distances in a cluster, from a Gram matrix relative to the cluster's first row.

    The function calls itself for the clusters within this cluster.
    """
    gram_SS = gram(rows, 0)
    squared_SS = _distances(gram_SS)
    near_SS = _near(gram_SS, squared_SS)
    for cluster in _clusters(near_SS):
        at = torch.tensor(cluster)
        squared_SS[at[:, None], at] = torch.where(
            near_SS[at][:, at], _refined(rows.keep(cluster)), squared_SS[at[:, None], at]
        )
    return squared_SS


def _distances(gram_MM: Tensor) -> Tensor:
    squares_M = gram_MM.diagonal()
    squared_MM = squares_M[:, None] + squares_M[None, :] - 2 * gram_MM
    squared_MM = squared_MM.clamp(min=0).nan_to_num(nan=torch.inf, posinf=torch.inf)
    squared_MM = (squared_MM + squared_MM.T) / 2
    return squared_MM.fill_diagonal_(0)


def _near(gram_MM: Tensor, squared_MM: Tensor) -> Tensor:
    squares_M = gram_MM.diagonal()
    near_MM = squared_MM < NEAR * torch.minimum(squares_M[:, None], squares_M[None, :])
    return near_MM.fill_diagonal_(False)


def _clusters(near_MM: Tensor) -> list[list[int]]:
    """Clusters of two or more rows that are connected by chains of near rows.

    >>> near = torch.zeros(4, 4, dtype=torch.bool)
    >>> near[1, 3] = near[3, 1] = True
    >>> _clusters(near)
    [[1, 3]]
    """
    if not bool(near_MM.any()):
        return []
    neighbours = [row.nonzero().flatten().tolist() for row in near_MM]
    clusters, seen = [], set[int]()
    for first in range(len(neighbours)):
        if first in seen or not neighbours[first]:
            continue
        cluster, frontier = {first}, [first]
        while frontier:
            fresh = set(neighbours[frontier.pop()]) - cluster
            cluster |= fresh
            frontier += fresh
        seen |= cluster
        clusters.append(sorted(cluster))
    return clusters


def _middle(rows: View) -> int:
    """The row nearest to the coordinate-wise median, estimated from a sample of coordinates."""
    drawn_C = torch.arange(min(rows.whole_dim, SAMPLE))
    if rows.whole_dim > SAMPLE:
        width = SAMPLE // PIECES
        starts_P = torch.arange(PIECES) * ((rows.whole_dim - width) // (PIECES - 1))
        drawn_C = (starts_P[:, None] + torch.arange(width)).flatten()
    sample_NC = rows.place.gathered(rows.block_ND, drawn_C, rows.file)
    sample = replace(
        rows, block_ND=sample_NC, pool_statistics=PoolStatistics(), file=None, part=None
    )
    return int(norms(sample, median(sample)).argsort(stable=True)[0])
