"""Sageflow: drops models that are uncertain on public samples; weights the other models by loss."""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.context import Need
from rampart_fl.shared.robust.public_evaluation import evaluate_models
from rampart_fl.shared.robust.rules import rules

LEAST = 1e-3
"""If the sum of the unnormalized weights is at most `LEAST`, the global model is not updated."""


@rules.register("sageflow")
class Sageflow(Rule):
    """Weighted mean without uncertain models; a model with a larger loss gets less weight.

    The result is sum_i q_i x_i. The weight q_i of row x_i is proportional to
    n_i max(l_i, floor)^-δ, or 0 if the entropy is at least E_th.

    l_i is the mean loss of client i's model (the reference plus the client's update) on the
    server's labelled public samples. The entropy is the mean entropy of the predictions that client
    i's model makes on the public samples. The factor n_i is the client's trusted weight, divided by
    the sum of all trusted weights. If the unnormalized weights sum to 1e-3 or less, the global
    model is not updated. The rule judges each model separately, and only on the public samples. A
    model that predicts the public samples well can behave arbitrarily on other samples.

    >>> import torch
    >>> from rampart_fl.shared.robust import Context, aggregate
    >>> from rampart_fl.shared.robust.context import PublicData
    >>> def predict(models_KD, x_KB):  # logits (w x, 0) of two classes
    ...     z_KB = models_KD[:, :1] * x_KB[..., 0]
    ...     return torch.stack([z_KB, torch.zeros_like(z_KB)], dim=2)
    >>> public = PublicData(torch.tensor([[1.0]]), torch.tensor([0]))
    >>> context = Context(reference_D=torch.zeros(1), predict=predict, public=public)
    >>> stage = {"name": "sageflow", "entropy": 0.5}
    >>> aggregate(torch.tensor([[4.0], [4.0], [-4.0], [0.1]]), stage, context=context)
    tensor([3.9820])
    """

    paper = "Park et al., Sageflow: Robust federated learning, 2021"
    breakdown = "none"
    complexity = "O(nd), and n models on the public samples"
    passes = "in memory only: runs every client's model on the public samples"
    streams = False
    entropy: float = Field(default=1.0, gt=0)
    """E_th, the threshold for entropies, in nats. A model that predicts all C classes with equal
    probability has entropy ln C (2.3 for ten classes)."""
    delta: float = Field(default=1.0, ge=0)
    """δ, which sets how much a greater loss lowers a weight. If δ is 0, losses do not affect the
    weights."""
    floor: float = Field(default=1e-6, gt=0)
    """Lower bound on losses; without it, a model with loss 0 would get all the weight."""

    def needs(self) -> frozenset[Need]:
        return frozenset({"predict", "public", "labels"})

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        judged = evaluate_models(rows, context, self.name, labels=True)
        assert judged.loss_M is not None
        trusted_M = rows.trusted_weights()
        worth_M = trusted_M / trusted_M.sum() * judged.loss_M.clamp(min=self.floor) ** -self.delta
        sure_M = (judged.entropy_M < self.entropy) & judged.loss_M.isfinite()
        worth_M = torch.where(sure_M, worth_M, 0.0)
        total = float(worth_M.sum())
        weights_M = worth_M / total if total > LEAST else torch.zeros_like(worth_M)
        columns = {"weight": weights_M, "entropy": judged.entropy_M, "loss": judged.loss_M}
        filtered = int((~sure_M).sum())
        report = Report(self.name, rows.ids, columns, {"filtered": filtered})
        return linalg.combine(rows, weights_M), state, report
