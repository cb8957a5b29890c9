"""Evaluation of models on the clients' own samples, for one client or for many clients at once.

Legend: K clients, N training samples (padded to the largest client), V held-out samples (padded
likewise), T samples of any set (padded likewise), B samples in a forward pass, C classes,
D parameters.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training import personalizer_calls
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.scoring import fooled
from rampart_fl.shared.rounding import ceil_div
from rampart_fl.shared.runtime.device import to_device

EVALUATED = 4096
"""Highest number of samples in one forward pass of an evaluation, over all clients together."""
TILE = 16
"""A forward pass has at least this many samples per client, if they fit. For fewer samples,
libraries use other matrix kernels, and the results differ in the last bits. If the tensor also
holds clients with more samples than the clients of a pass, the pass rounds its number of samples
per client up to a multiple of `TILE`."""


def evaluate(
    learner: Learner, data: ClientData, received_D: Tensor, personal: Mapping[str, Tensor]
) -> dict[str, float]:
    """Metrics of the received model and of the client's own model, without training."""
    cohort = Cohort.of([data], received_D.dtype, received_D.device)
    stacked = {name: tensor.unsqueeze(0) for name, tensor in personal.items()}
    metrics = evaluate_many(learner, cohort, received_D.unsqueeze(0), stacked)
    return {name: column.item() for name, column in metrics.items()}


def evaluate_many(
    learner: Learner, cohort: Cohort, received_KD: Tensor, personal: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """`evaluate` for K clients; returns values (K,), keyed by metric."""
    metrics = {
        "test_samples": counts(cohort.test_K),
        **score_sums(learner, cohort, received_KD, "customized"),
    }
    kept_KD = personalizer_calls.personalized(learner.personalizer, received_KD, personal)
    if kept_KD is not None:
        metrics |= score_sums(learner, cohort, kept_KD, "personalized")
    return metrics


def score_sums(learner: Learner, cohort: Cohort, models_KD: Tensor, kind: str) -> dict[str, Tensor]:
    """Tests each client's model on its own test samples; returns sums (K,), keyed by metric."""
    x_KT, y_KT, trigger = cohort.x_test_KT, cohort.y_test_KT, learner.trigger
    scores_KT = _each(learner, models_KD, x_KT, y_KT, cohort.test_K, learner.scoring.scores)
    sums = {f"{learner.scoring.counted}_{kind}": scores_KT.sum(1)}
    if trigger is not None:
        shown_KT = trigger.with_trigger(x_KT.flatten(0, 1)).view_as(x_KT)
        target_KT = torch.full_like(y_KT, trigger.target)
        fooled_KT = _each(learner, models_KD, shown_KT, target_KT, cohort.test_K, fooled)
        others_KT = (y_KT != trigger.target).double()
        sums["triggered_samples"] = _within(others_KT, cohort.test_K).sum(1)
        sums[f"fooled_{kind}"] = (fooled_KT * others_KT).sum(1)
    return sums


def training_loss(learner: Learner, cohort: Cohort, models_KD: Tensor) -> Tensor:
    """Mean loss (K,) of every client's model on the client's own training set."""
    x_KN, y_KN = cohort.x_train_KN, cohort.y_train_KN
    losses_KN = _each(learner, models_KD, x_KN, y_KN, cohort.train_K, learner.scoring.losses)
    return losses_KN.sum(1) / to_device(counts(cohort.train_K), losses_KN.device)


def held_out_loss(learner: Learner, cohort: Cohort, batches: Batches, models_KD: Tensor) -> Tensor:
    """Mean loss (K,) of every client's model on the client's held-out samples."""
    held_KV = to_device(pad_sequence(list(batches.held), batch_first=True), models_KD.device)
    client_K1 = torch.arange(len(models_KD), device=models_KD.device)[:, None]
    x_KV, y_KV = cohort.x_train_KN[client_K1, held_KV], cohort.y_train_KN[client_K1, held_KV]
    sizes = [len(one) for one in batches.held]
    losses_KV = _each(learner, models_KD, x_KV, y_KV, sizes, learner.scoring.losses)
    return losses_KV.sum(1) / to_device(counts(sizes), losses_KV.device)


def _each(
    learner: Learner,
    models_KD: Tensor,
    x_KT: Tensor,
    y_KT: Tensor,
    sizes: Sequence[int],
    score: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Scores (K, T) in float64; 0 for padding.

    A pass takes as many samples of one client as fit. A pass takes several clients only if all
    samples of these clients fit. A pass has at most as many samples per client as its largest
    client needs, rounded up to a multiple of `TILE`.
    """
    samples = min(EVALUATED, learner.network.at_once(x_KT[:, :1]))
    width = max(1, min(samples, x_KT.shape[1]))
    at_once = max(1, samples // max(width, TILE))
    scores_KT = torch.zeros(y_KT.shape, dtype=torch.float64, device=y_KT.device)
    for first in range(0, len(models_KD), at_once):
        some = slice(first, first + at_once)
        longest = max(sizes[some])
        for start in range(0, longest, width):
            tiles = ceil_div(longest - start, TILE)
            part = (some, slice(start, start + min(width, tiles * TILE)))
            x_KB, y_KB = x_KT[part], y_KT[part]
            if x_KB.shape[1] < TILE <= samples:
                x_KB, y_KB = _padded(x_KB), _padded(y_KB)
            with torch.no_grad():
                logits_KBC = learner.network.logits(models_KD[some], x_KB)
            scores_KB = score(logits_KBC, y_KB)
            scores_KT[part] = scores_KB[:, : scores_KT[part].shape[1]].double()
    return _within(scores_KT, sizes)


def _padded(values_KB: Tensor) -> Tensor:
    """The values, padded with zeros to `TILE` samples per client."""
    clients, given, *shape = values_KB.shape
    return torch.cat([values_KB, values_KB.new_zeros(clients, TILE - given, *shape)], dim=1)


def _within(values_KT: Tensor, sizes: Sequence[int]) -> Tensor:
    """The values, with all padding (even NaN) replaced by 0."""
    position = torch.arange(values_KT.shape[1], device=values_KT.device)
    inside_KT = position < to_device(sizes, values_KT.device)[:, None]
    return values_KT.where(inside_KT, torch.zeros_like(values_KT))


def counts(sizes: Sequence[int]) -> Tensor:
    """Sample counts (K,) in float64."""
    return torch.tensor(sizes, dtype=torch.float64)
