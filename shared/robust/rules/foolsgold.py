"""FoolsGold: recognizes Sybils by the sums of their updates, which point in the same direction.

Legend: M rows of the round, H clients ever seen, D coordinates.
"""

from typing import Literal

import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import CHUNK, Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.state_memory import carry_over_rows, remembered, remembered_rows

RESOLVED = 1e-6
"""Two histories are treated as equal if their cosine is above 1 - `RESOLVED`. Without this
tolerance, rounding errors would separate clones."""


@rules.register("foolsgold")
class FoolsGold(Rule):
    """Weighted mean with low weights for clients whose summed updates are aligned.

    The result is sum_i α_i x_i. Let H_i be the sum of all updates of client i. The weight α_i is
    low if H_i points in the same direction as the sum H_j of another client j.

    For two clients i ≠ j, let cs_ij = cos(H_i, H_j). Let cs_ii = 0, and v_i = max_j cs_ij. If
    v_i < v_j, cs_ij is multiplied by v_i / v_j (pardoning). After pardoning, α_i = 1 - max_j cs_ij,
    clipped to [0, 1] and divided by the largest α. The final α is ln(α / (1 - α)) + 1/2, clipped to
    [0, 1]. The history H is keyed by client id. An update is added to the history only once, even
    if it is used again in a later round (with "fresh" = 0 in its metadata). If all α are zero, the
    global model is not updated.

    This rule defends against Sybils only. Honest clients with equal updates get weight zero. The
    rule does not bound the norms of updates.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), "foolsgold")
    tensor([1., 0.])
    """

    paper = "Fung et al., The limitations of federated learning in Sybil settings, 2020"
    breakdown = "none"
    complexity = "O(n²d), keeps n·d"
    passes = "2, and 1 over the sums of all updates of every client"
    remembers = True
    normalize: Literal["weights", "count", "none"] = "weights"
    """The divisor of the weighted sum: the sum of all α (`weights`), the number of rows (`count`),
    or 1 (`none`, as in the original algorithm)."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        state = _remember(rows, state)
        history = remembered_rows(state, "history", rows, rows.ids)
        alpha_M = self.weights(linalg.cosines(history))
        total = {"weights": float(alpha_M.sum()), "count": float(len(rows)), "none": 1.0}
        shares_M = alpha_M / (total[self.normalize] or 1.0)
        report = Report(self.name, rows.ids, {"weight": shares_M, "score": alpha_M})
        return rows.combine(shares_M), state, report

    def weights(self, cosines_MM: Tensor) -> Tensor:
        """The final α (M,), in [0, 1], from the cosine similarities of the histories."""
        m = len(cosines_MM)
        if m == 1:
            return torch.ones(1, dtype=torch.float64)
        cosines_MM = cosines_MM.double().clone().fill_diagonal_(0)
        likest_M = cosines_MM.max(dim=1).values
        pardon_MM = likest_M[:, None] < likest_M[None, :]
        ratios_MM = torch.where(pardon_MM, likest_M[:, None] / likest_M[None, :], 1.0)
        alpha_M = (1 - (cosines_MM * ratios_MM).max(dim=1).values).clamp(0, 1)
        alpha_M[alpha_M < RESOLVED] = 0
        if not bool(alpha_M.any()):
            return alpha_M
        alpha_M = (alpha_M / alpha_M.max()).clamp(max=0.99)
        return (torch.logit(alpha_M) + 0.5).clamp(0, 1)


def _remember(rows: Rows, state: State) -> State:
    """Adds this round's updates to the history, which has one row per client ever seen."""
    block, at = carry_over_rows(state, "history", rows, rows.ids)
    # If a coordinate of the sum would overflow, it is clamped to the dtype's largest finite number.
    largest, fresh = torch.finfo(block.tensor.dtype).max, rows.fresh()
    for start, stop, chunk_MC in rows.chunks(rows.width(4 * CHUNK)):
        for client, row_C, new in zip(rows.ids, chunk_MC, fresh, strict=True):
            if not new:
                continue
            block.tensor[at[client], start:stop].add_(row_C).clamp_(-largest, largest)
            block.release(at[client], slice(start, stop))
    return remembered("history", block, at)
