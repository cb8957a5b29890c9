"""FedCAP's customized aggregation: each client gets a mix of the models of similar clients.

Legend: D coordinates, M clients in the pool.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Rows, State
from rampart_fl.shared.robust.customizers import Customization, Customizer, customizers
from rampart_fl.shared.robust.models import Mixture
from rampart_fl.shared.robust.view import View


@customizers.register("fedcap")
class FedCAP(Customizer):
    """Mixes the model of each client with the models of similar clients.

    The model of client k is reference + sum_i p_ki d_i. Its weights are p_kk = φ and, for all other
    clients i, p_ki = (1-φ) softmax_i≠k(α cos_ki).

    Here, d_i is the calibrated update of client i, and cos_ki is the cosine similarity of the
    updates of k and i (-1 if either update is zero). The softmax for client k runs over all clients
    except k. A client without a row in the pool is probed, that is, it trains once from the
    reference model. The client's model is then mixed from all rows of the pool. The rows' weights
    are the softmax of α times the rows' cosine similarities to the client's answer to the probe.
    These weights do not depend on φ, because no row in the pool is the client's own.
    """

    paper = "FedCAP, section V-A, equations 4 and 5"
    complexity = "O(n²d)"
    passes = "2, and models are written during the second"
    alpha: float = Field(default=10.0, ge=0)
    """α, the factor of the similarities; if α is 0, all other clients' models get the same
    weight."""
    phi: float = Field(default=0.1, ge=0, le=1)
    """φ, the weight of a client's own model in the mix for this client."""
    similarity: Literal["all", "last_layer"] = "all"
    """Whether similarities are computed from all coordinates, or only from those of the last
    layer."""

    @property
    def probes(self) -> bool:
        return True

    @property
    def compares_heads(self) -> bool:
        return self.similarity == "last_layer"

    def apply(
        self, rows: Rows, similar: Rows, state: State, context: Context
    ) -> tuple[Customization, State]:
        assert context.reference_D is not None
        if not len(rows):
            return Customization(), state
        mix_MM = self.weights(linalg.cosines(similar.span(self._judged(context))))
        mixture = Mixture(rows.ids, context.reference_D, rows, mix_MM)
        return Customization(mixture, {client: (client,) for client in rows.ids}), state

    def weights(self, cosines_MM: Tensor) -> Tensor:
        """Mixing weights (M, M) in float64; each row sums to 1.

        >>> FedCAP(alpha=0, phi=0.4).weights(torch.zeros(3, 3))[0]
        tensor([0.4000, 0.3000, 0.3000], dtype=torch.float64)
        """
        m = len(cosines_MM)
        if m == 1:
            return torch.ones(1, 1, dtype=torch.float64)
        own_MM = torch.eye(m, dtype=torch.bool)
        logits_MM = self.alpha * cosines_MM.double()
        others_MM = logits_MM.masked_fill(own_MM, -torch.inf).softmax(dim=1)
        return (1 - self.phi) * others_MM + self.phi * own_MM.double()

    def customize_newcomer(self, probe_D: Tensor, rows: Rows, context: Context) -> Tensor:
        judged = self._judged(context)
        probe = View(probe_D.unsqueeze(0), ids=("probe",), part=rows.part).span(judged)
        cosines_M = linalg.cosines_to(rows.span(judged), probe.block_ND[0])
        return (self.alpha * cosines_M).softmax(dim=0)

    def _judged(self, context: Context) -> slice | None:
        return None if self.similarity == "all" else context.last_layer()
