"""FLTrust: weighs each update by its similarity to an update trained on the server's own data."""

import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.context import Need
from rampart_fl.shared.robust.rules import rules


@rules.register("fltrust")
class FLTrust(Rule):
    """Averages rows scaled to the server update's norm, weighted by similarity to this update.

    The result is sum_i T_i x_i |u| / |x_i|, divided by sum_i T_i. Here, u is the server's own
    update (`context.server_update_D`), and T_i = max(0, cos(x_i, u)) is the trust in row x_i. If no
    row has a trust above 0, the global model is not updated. The norm of the result is at most |u|.
    Scaling a row does not change the result, with one exception: T_i is 0 if |u| / |x_i| overflows
    in the rows' number format.

    >>> from rampart_fl.shared.robust import Context, aggregate
    >>> import torch
    >>> x = torch.tensor([[6.0, 8.0], [-3.0, -4.0], [4.0, -3.0], [30.0, 40.0]])
    >>> aggregate(x, "fltrust", context=Context(server_update_D=torch.tensor([3.0, 4.0])))
    tensor([3., 4.])
    """

    paper = "Cao et al., FLTrust: Byzantine-robust federated learning via trust bootstrapping, 2021"
    breakdown = "f < n, in norm"
    complexity = "O(nd)"
    passes = "2"

    def needs(self) -> frozenset[Need]:
        return frozenset({"server_update"})

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        server_D = context.own_update(self.name, rows.place)
        trust_M = linalg.cosines_to(rows, server_D).clamp(min=0)
        length = linalg.norm(server_D, rows.part)
        # A zero row has trust 0; its norm is clamped only to avoid a division by 0.
        scales_M = length / linalg.norms(rows).clamp(min=torch.finfo(torch.float64).tiny)
        # A row also gets no trust if its norm is so small that |u| / |x_i| overflows in the rows'
        # number format.
        trust_M[scales_M > torch.finfo(rows.block_ND.dtype).max] = 0.0
        shares_M = torch.where(trust_M > 0, trust_M * scales_M, 0.0)
        shares_M /= float(trust_M.sum()) or 1.0
        report = Report(self.name, rows.ids, {"weight": shares_M, "score": trust_M})
        return rows.combine(shares_M), state, report
