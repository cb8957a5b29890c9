"""Minimum-diameter averaging: the mean of the n - f rows that are closest together.

Let a graph have one vertex per row, and an edge between any two rows that are farther apart than r.
A vertex cover is a set of vertices that touches every edge. A subset of rows has diameter at most r
if and only if all other rows form a vertex cover. Therefore, n - f rows with diameter at most r
exist if and only if the graph has a vertex cover of at most f rows. Bisection over the distances
finds the smallest possible diameter r without a search through all subsets.

Legend: M rows, D coordinates.
"""

from collections.abc import Mapping

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import linalg, ties
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules

Graph = Mapping[int, int]
"""The neighbours of every vertex, keyed by vertex and encoded as the bits of an integer."""


class StepLimit:
    """Counts the steps of a search, and aborts the search after too many steps."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def take(self) -> None:
        """Counts one more step; raises `PreconditionError` if no steps are left."""
        self.left -= 1
        if self.left < 0:
            raise PreconditionError(
                f"minimum_diameter_averaging found no result within {self.most} steps (`most`): a "
                "smaller f needs fewer steps"
            )


@rules.register("minimum_diameter_averaging")
class MinimumDiameterAveraging(Rule):
    """The mean of the set of n - f rows with the smallest diameter; ties go to the lowest ids.

    >>> import torch
    >>> from rampart_fl.shared.robust import aggregate
    >>> rows = torch.tensor([[0.0], [1.0], [2.1], [3.3], [100.0]])
    >>> aggregate(rows, "minimum_diameter_averaging", f=1)
    tensor([1.6000])
    """

    paper = "El Mhamdi et al., The hidden vulnerability, 2018 (MDA); exact, by vertex cover"
    breakdown = "f < n/2"
    complexity = "O(n²d) and 2^f at worst"
    passes = "2"
    most: int = Field(default=500_000, ge=1)
    """Largest number of steps in the search for the set of rows. About 20,000 steps take one
    second. If the search is not finished after `most` steps, the round fails."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        f = self.require_majority(rows)
        kept, diameter = least_diameter_subset(
            linalg.squared_distances(rows), f, StepLimit(self.most)
        )
        weights_M = linalg.uniform(len(rows), kept)
        report = Report(self.name, rows.ids, {"weight": weights_M}, {"diameter": diameter})
        return rows.combine(weights_M), state, report


def least_diameter_subset(squared_MM: Tensor, f: int, steps: StepLimit) -> tuple[list[int], float]:
    """The positions of the set of m - f rows with the smallest diameter, and this diameter.

    If several sets have the smallest diameter, the lexicographically first set is returned. Squared
    diameters that differ only by rounding errors count as equal (see `ties`).

    >>> import torch
    >>> points = torch.tensor([0.0, 5.0, 1.0, 2.0], dtype=torch.float64)
    >>> least_diameter_subset((points[:, None] - points).square(), 1, StepLimit(99))
    ([0, 2, 3], 2.0)
    """
    m, blur = len(squared_MM), ties.tolerance(squared_MM, f)
    radii: list[float] = torch.unique(squared_MM).tolist()
    low, high = 0, len(radii) - 1
    while low < high:
        middle = (low + high) // 2
        if has_vertex_cover(_far(squared_MM, radii[middle] + blur), f, steps):
            high = middle
        else:
            low = middle + 1
    graph, out, kept = _far(squared_MM, radii[low] + blur), 0, list[int]()
    for row in range(m):
        if out >> row & 1 or len(kept) == m - f:
            continue
        # If the row is kept, all rows that are too far from the kept row must be left out.
        leaves = out | graph[row]
        left = f - leaves.bit_count()
        if left >= 0 and has_vertex_cover(_without(graph, leaves), left, steps):
            out, graph = leaves, _without(graph, leaves)
            kept.append(row)
        else:
            out |= 1 << row
            graph = _without(graph, 1 << row)
    return kept, float(squared_MM[kept][:, kept].max().sqrt())


def has_vertex_cover(graph: Graph, most: int, steps: StepLimit) -> bool:
    """Whether some set of at most `most` vertices touches every edge.

    >>> triangle = {0: 0b110, 1: 0b101, 2: 0b011}
    >>> has_vertex_cover(triangle, 1, StepLimit(9)), has_vertex_cover(triangle, 2, StepLimit(9))
    (False, True)
    """
    steps.take()
    degrees = {vertex: others.bit_count() for vertex, others in graph.items() if others}
    if not degrees:
        return True
    top = max(degrees, key=lambda vertex: degrees[vertex])
    # Together, `most` vertices touch at most `most * degrees[top]` edges. If the graph has more
    # edges, there is no cover. The number of edges is half the sum of the degrees.
    if most <= 0 or sum(degrees.values()) > 2 * most * degrees[top]:
        return False
    if degrees[top] == 1:
        return len(degrees) <= 2 * most
    if has_vertex_cover(_without(graph, 1 << top), most - 1, steps):
        return True
    left = most - degrees[top]
    return left >= 0 and has_vertex_cover(_without(graph, graph[top]), left, steps)


def _far(squared_MM: Tensor, radius: float) -> dict[int, int]:
    bits = np.packbits((squared_MM > radius).numpy(), axis=1, bitorder="little")
    return {i: int.from_bytes(row.tobytes(), "little") for i, row in enumerate(bits)}


def _without(graph: Graph, out: int) -> dict[int, int]:
    return {vertex: others & ~out for vertex, others in graph.items() if not out >> vertex & 1}
