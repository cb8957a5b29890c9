"""Divide and conquer: removes rows that are outliers along the top singular direction.

Legend: M rows, D coordinates, R drawn coordinates.
"""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import linalg, spectral
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.random_coordinates import coordinates
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.rounding import floor_share


@rules.register("dnc")
class DnC(Rule):
    """Mean of the rows that pass all spectral tests; `iterations` is the number of tests.

    Each test draws R coordinates, and subtracts the mean row μ from all rows. The score of row i is
    (vᵀ(x_i - μ))², where v is the top right-singular vector of the differences x_i - μ. The test
    removes the c·f rows with the highest scores. The rule averages the rows that pass all tests. If
    no row passes all tests, the global model is not updated. Hostile rows can hide each other from
    the test. A row with a very large norm hides rows with smaller norms. Two opposite rows hide a
    third row that has the same norm but another direction. The rule therefore bounds the influence
    of hostile rows only under two conditions: the hostile rows are all equal to each other, and c
    is at least 1.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[0.0], [1.0], [2.0], [100.0]]), "dnc", f=1)
    tensor([1.])
    """

    paper = "Shejwalkar and Houmansadr, Manipulating the Byzantine, 2021"
    breakdown = "f < n/2, against equal hostile rows and with c >= 1"
    complexity = "O(n²r) per test, O(nd)"
    passes = "1, then the random coordinates of each test"
    iterations: int = Field(default=5, ge=1)
    """Number of tests; if `sample` >= D, there is only one test."""
    sample: int = Field(default=10_000, ge=1)
    """R, the number of coordinates drawn for each test; if R >= D, one test uses all of them."""
    c: float = Field(default=1.0, gt=0)
    """Number of rows that each test leaves out, as a multiple of f (the product is rounded down).
    """

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        m = len(rows)
        out = floor_share(self.c, self.tolerated(rows))
        self.require(rows, out + 1, "n > c f")
        kept_M = torch.ones(m, dtype=torch.bool)
        worst_M = torch.zeros(m, dtype=torch.float64)
        for turn in range(self.iterations if out else 0):
            drawn_R = coordinates(context, f"dnc-{turn}", rows.whole_dim, self.sample)
            part = rows if drawn_R is None else rows.columns(drawn_R)
            apart_MM = linalg.squared_distances(part)
            near_M = spectral.reachable(apart_MM)
            along_M = spectral.top(apart_MM, spectral.uniform(near_M)).along_M
            along_M[~near_M] = torch.inf
            kept_M[along_M.sort(stable=True).indices[m - out :]] = False
            worst_M = torch.maximum(worst_M, along_M)
            if drawn_R is None:
                break
        shares_M = kept_M.double() / max(int(kept_M.sum()), 1)
        report = Report(self.name, rows.ids, {"weight": shares_M, "score": worst_M})
        return rows.combine(shares_M), state, report
