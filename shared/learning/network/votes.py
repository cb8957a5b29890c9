"""Inference by majority vote of several models, and the robustness of the vote.

Legend: N samples, C classes, D parameters, K clients, T test samples (padded).
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from rampart_fl.shared.learning.training.cohort import Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.robust.certificates import radii, winners
from rampart_fl.shared.runtime.device import to_device

SAMPLES = 4096
"""Number of samples in one forward pass."""
MOST = 32
"""The largest m for which clients report how many samples are certified against m attackers."""


def ballots(learner: Learner, x_N: Tensor, voters: Iterable[Tensor]) -> Tensor:
    """For each sample, the number of votes for each class (N, C).

    Each voter is the vector (D,) of one model, and votes for one class per sample.
    """
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
    assert votes_NC is not None, "a vote needs at least one voter"
    return votes_NC


def vote(learner: Learner, cohort: Cohort, voters: Iterable[Tensor]) -> dict[str, Tensor]:
    """Lets all voters vote on every client's test samples; returns counts (K,), keyed by name.

    Args:
        learner: the network.
        cohort: the clients' data.
        voters: models (D,) of disjoint groups of clients.
    Returns:
        `test_samples`: all test samples. `correct_vote`: the samples that the vote classifies
        correctly. `certified_01`, `certified_02` and so on: the samples that stay correctly
        classified whatever m = 1, 2, ... hostile clients do (see
        `rampart_fl.shared.robust.certificates.radii`). The largest m is half the number of voters,
        rounded down, but at most `MOST`. If the experiment has a trigger, there are two more
        counts. `triggered_samples`: the samples of all classes except the target, each with the
        trigger added. `fooled_vote`: the triggered samples that the vote assigns to the target
        class.
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
        shown_N = learner.trigger.with_trigger(cohort.x_test_KT.flatten(0, 1))
        chosen_KT = winners(ballots(learner, shown_N, models)).view(k, width)
        others_KT = (cohort.y_test_KT != learner.trigger.target) & inside_KT
        fooled_KT = others_KT & (chosen_KT == learner.trigger.target)
        counts["triggered_samples"] = others_KT.sum(1).double()
        counts["fooled_vote"] = fooled_KT.sum(1).double()
    return counts
