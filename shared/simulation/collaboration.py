"""Estimates the terms of λ, the degree of collaboration in fine-tuned personalization.

    λ_i = Π_[0,1]( (√(Pdim / m_i) - Φ_i) / ((f / n) G_i²) )

Collaboration helps a client if its own m_i samples are too few to determine a model of
pseudo-dimension Pdim. Collaboration harms a client for two reasons: other clients' data differ (Φ),
and a robust rule cannot distinguish all differences from attacks (f/n · G²). The paper defines Φ
and G² as bounds, but does not say how to measure Φ and G². This module estimates both from pilot
models. A client trains its pilot model alone (λ = 0) on every second training sample, for as
many rounds as the experiment has. The other training samples are held out.

- Pdim: the personalizer's setting `pdim` if it is given, or else the model's number of parameters.
- Φ_i: the largest gap |e_i(h) - e_C(h)|, estimated from the pilot models h. Here e_j(h) is the
  fraction of client j's held-out training samples that h misclassifies. The number e_C(h) is the
  mean of all e_j(h) except the f largest and the f smallest values. Up to f pilot models can be
  forged, so the f largest gaps at other clients' pilot models are ignored. The estimate is the
  largest remaining gap; the gap at the client's own pilot model is never ignored.
- G_i²: the spread of all clients' gradients at client i's own pilot model. The gradients are those
  that the server receives, including changes by attackers. The n - f gradients nearest to the
  robust aggregate are kept. The spread is the mean squared distance of the kept gradients to their
  mean.

Φ and G² are suprema over all models, but only the pilot models are evaluated. The estimates are
therefore lower than the suprema, and the resulting λ tends to be too large.

Legend: N clients, P pilot models (one per client), D parameters, T samples.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train
from rampart_fl.shared.learning.training.personalizers import Batch, personalizers
from rampart_fl.shared.learning.training.personalizers.interpolated import Interpolated
from rampart_fl.shared.simulation.exact_round import ExactRound


@dataclass(frozen=True, eq=False)
class Estimates:
    """The terms of the formula for λ, for every client.

    Args:
        pdim: the pseudo-dimension of the model.
        samples_N: the number m of each client's training samples.
        discrepancy_N: Φ of each client.
        dissimilarity_N: G² of each client.
    """

    pdim: int
    samples_N: Tensor
    discrepancy_N: Tensor
    dissimilarity_N: Tensor

    def shares(self, f: int) -> Tensor:
        """λ of each client (N,), by the formula of this module.

        If the denominator (f/n) G² is 0, λ is 1 for a positive numerator, and 0 otherwise.

        >>> two = torch.tensor([100.0, 100.0])
        >>> Estimates(4, two, torch.tensor([0.1, 0.3]), 2 * two / 100).shares(f=1).tolist()
        [0.10000000149011612, 0.0]
        """
        gain_N = (self.pdim / self.samples_N).sqrt() - self.discrepancy_N
        harm_N = f / len(gain_N) * self.dissimilarity_N
        limit_N = (gain_N > 0).to(gain_N)
        ratio_N = gain_N / harm_N.where(harm_N > 0, torch.ones_like(harm_N))
        return ratio_N.where(harm_N > 0, limit_N).clamp(0, 1)


def estimate(first: ExactRound) -> Estimates:
    """Estimates the terms of λ before the first round; the task must be classification."""
    clients, learner = first.clients, first.clients.learner
    chosen, f = learner.personalizer, clients.experiment.server.f or 0
    assert isinstance(chosen, Interpolated)
    cohort = clients.cohort(first.round)
    halves = _halves(cohort, clients.device)
    pilot_PD = _alone(first, halves)
    wrong_PN = torch.stack([_wrong(learner, halves, pilot_D) for pilot_D in pilot_PD])
    dissimilarity = [
        _dissimilarity(first, pilot_PD[i], update_ND, f)
        for i, update_ND in first.movements(pilot_PD, range(len(pilot_PD)), _whole(cohort))
    ]
    return Estimates(
        chosen.pdim or learner.spec.dim,
        torch.tensor(cohort.train_K, dtype=pilot_PD.dtype, device=pilot_PD.device),
        discrepancies(wrong_PN, f).to(pilot_PD),
        torch.tensor(dissimilarity).to(pilot_PD) / first.rate**2,
    )


def discrepancies(wrong_PN: Tensor, f: int) -> Tensor:
    """Φ (N,) of every client, by the definition in this module's docstring.

    Entry (p, n) of `wrong_PN` is the fraction of client n's samples that client p's pilot model
    misclassifies.

    >>> wrong_PN = torch.tensor([[0.0, 0.3, 0.3], [0.2, 0.2, 0.2], [0.2, 0.5, 0.2]])
    >>> [round(gap, 3) for gap in discrepancies(wrong_PN, f=0).tolist()]
    [0.2, 0.2, 0.1]
    """
    n = len(wrong_PN)
    cut = min(f, (n - 1) // 2)
    common_P = wrong_PN.sort(dim=1).values[:, cut : n - cut].mean(1)
    gap_PN = (wrong_PN - common_P[:, None]).abs()
    others_PN = gap_PN.clone().fill_diagonal_(0).sort(dim=0, descending=True).values
    return torch.maximum(gap_PN.diagonal(), others_PN[min(f, n - 1)])


def _halves(cohort: Cohort, device: str) -> Cohort:
    """Every client's training samples; every second sample is held out for testing."""
    halves = []
    for k, count in enumerate(cohort.train_K):
        x, y = cohort.x_train_KN[k, :count], cohort.y_train_KN[k, :count]
        halves.append(ClientData(x[::2], y[::2], x[1::2], y[1::2], 0))
    return Cohort.of(halves, cohort.x_train_KN.dtype, device)


def _alone(first: ExactRound, cohort: Cohort) -> Tensor:
    """The pilot models (P, D): each client trains alone, for the experiment's number of rounds."""
    clients, names = first.clients, first.clients.names
    learner = replace(clients.learner, personalizer=personalizers.build("none"))
    model_ND = clients.personal["model"]
    for round_ in range(clients.experiment.rounds):
        seed = clients.experiment.seed
        batches = Batches.draw(cohort.train_K, names, learner.training, seed, round_)
        model_ND = model_ND + train(learner, cohort, batches, model_ND, {}, False).update_KD
    return model_ND


def _wrong(learner: Learner, halves: Cohort, pilot_D: Tensor) -> Tensor:
    """The fraction (N,) of every client's held-out samples that one model misclassifies."""
    x_NT, y_NT, counts = halves.x_test_KT, halves.y_test_KT, torch.tensor(halves.test_K)
    with torch.no_grad():
        logits = learner.network.logits(pilot_D.expand(len(counts), -1), x_NT)
    inside_NT = torch.arange(y_NT.shape[1]) < counts[:, None]
    wrong_NT = (~learner.scoring.scores(logits, y_NT).bool()).cpu() & inside_NT
    return wrong_NT.sum(1) / counts.clamp(min=1)


def _whole(cohort: Cohort) -> Batch:
    """Every client's whole training set as one batch."""
    counts = torch.tensor(cohort.train_K)
    weight_NT = (torch.arange(cohort.y_train_KN.shape[1]) < counts[:, None]) / counts[:, None]
    return Batch(cohort.x_train_KN, cohort.y_train_KN, weight_NT.to(cohort.x_train_KN))


def _dissimilarity(first: ExactRound, pilot_D: Tensor, update_ND: Tensor, f: int) -> float:
    """The spread of the n - f rows that are nearest to the aggregate.

    The spread is the mean squared distance of the n - f rows to their mean.
    """
    rows = first.arrive(update_ND, pilot_D)
    state = first.server.rounds.plan.pipeline.init(rows.dim)
    aggregate_D, _ = first.aggregate(rows, pilot_D, state)
    block_MD = torch.stack([rows.row(i) for i in range(len(rows))]).double()
    squared_M = (block_MD - aggregate_D.double()).square().sum(1)
    nearest = squared_M.argsort(stable=True)[: len(update_ND) - f]
    kept_MD = block_MD[nearest]
    return float((kept_MD - kept_MD.mean(0)).square().sum(1).mean())
