"""Inference by the majority vote of several models, and how sure its decisions are.

Legend: N samples, C classes, D parameters, K clients, T test samples (padded).
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from rampart_fl.shared.learning.cohort import Cohort
from rampart_fl.shared.learning.learner import Learner
from rampart_fl.shared.robust.certificates import radii, winners
from rampart_fl.shared.runtime.device import to_device

SAMPLES = 4096
"""Samples in one forward pass."""
MOST = 32
"""Numbers of hostile clients that a client reports certified samples for."""


def ballots(learner: Learner, x_N: Tensor, voters: Iterable[Tensor]) -> Tensor:
    """Votes (N, C) for every class: each voter (D,) casts one on every sample."""
    votes_NC = None
    for model_D in voters:
        with torch.no_grad():
            parts = [
                learner.network.logits(model_D.unsqueeze(0), x_B.unsqueeze(0))[0]
                for x_B in torch.split(x_N, SAMPLES)
            ]
        logits_NC = torch.cat(parts)
        if votes_NC is None:
            votes_NC = torch.zeros(logits_NC.shape, dtype=torch.long, device=x_N.device)
        votes_NC.scatter_add_(
            1, logits_NC.argmax(1, keepdim=True), torch.ones_like(votes_NC[:, :1])
        )
    assert votes_NC is not None, "a vote needs a voter"
    return votes_NC


def vote(learner: Learner, cohort: Cohort, voters: Iterable[Tensor]) -> dict[str, Tensor]:
    """What clients (K,) count on their own test samples when these models decide by majority.

    Args:
        learner: the network.
        cohort: the clients' data.
        voters: models (D,) of disjoint groups of clients.
    Returns:
        `test_samples`; `correct_vote`, samples that are decided rightly; `certified_01` and so on,
        those of them that 1, 2, ... hostile clients cannot change (see
        `rampart_fl.shared.robust.certificates.radii`), as far as so many voters can certify at all.
        Where the experiment has a trigger, also `triggered_samples` and `fooled_vote`: samples of
        other classes that show it, and those of them that are decided to be of its target.
    """
    k, width = cohort.y_test_KT.shape
    models = list(voters)
    votes_NC = ballots(learner, cohort.x_test_KT.flatten(0, 1), models)
    sizes_K1 = to_device(cohort.test_K, votes_NC.device).unsqueeze(1)
    inside_KT = torch.arange(width, device=votes_NC.device) < sizes_K1
    right_KT = (winners(votes_NC).view(k, width) == cohort.y_test_KT) & inside_KT
    radii_KT = radii(votes_NC).view(k, width)
    counts = {
        "test_samples": torch.tensor(cohort.test_K, dtype=torch.float64),
        "correct_vote": right_KT.sum(1).double(),
    }
    for m in range(1, min(MOST, len(models) // 2) + 1):
        counts[f"certified_{m:02d}"] = (right_KT & (radii_KT >= m)).sum(1).double()
    if learner.trigger is not None:
        shown_N = learner.trigger.shown(cohort.x_test_KT.flatten(0, 1))
        chosen_KT = winners(ballots(learner, shown_N, models)).view(k, width)
        others_KT = (cohort.y_test_KT != learner.trigger.target) & inside_KT
        fooled_KT = others_KT & (chosen_KT == learner.trigger.target)
        counts["triggered_samples"] = others_KT.sum(1).double()
        counts["fooled_vote"] = fooled_KT.sum(1).double()
    return counts
