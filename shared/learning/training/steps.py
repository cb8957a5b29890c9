"""The steps of a round: many clients train at once, each on one mini-batch after the other.

If one pass cannot train all clients (`Stacked.trained_at_once`), the clients are split into groups.
The groups train one after the other, each from its first batch to its last batch. The memory that a
group's steps use therefore stays in cache, and a group with few steps does not wait for a group
with more steps.

Legend: K clients, S steps in a round, B samples in a batch, D parameters.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.personalizers import Batch, Local
from rampart_fl.shared.learning.training.privacy import PrivateTask
from rampart_fl.shared.learning.training.task import runs
from rampart_fl.shared.runtime.device import to_device


def take_steps(
    learner: Learner,
    cohort: Cohort,
    batches: Batches,
    received_KD: Tensor,
    local: Local,
    hostile: Sequence[int] = (),
) -> tuple[Local, Tensor]:
    """The models and state after all steps, and each client's number of noised gradients (K,).

    Args:
        learner: network, personalizer, optimizer.
        cohort: the clients' data.
        batches: which samples the clients see in which step.
        received_KD: the models with which the round began.
        local: the models and state before the first step.
        hostile: positions of the clients that train without the objective's terms and without
            noise.
    """
    ended = []
    for some in runs(len(received_KD), learner.network.trained_at_once(cohort.like(batches.width))):
        bad = [k - some.start for k in hostile if some.start <= k < some.stop]
        part = (cohort.part(some), batches.part(some), received_KD[some], local.part(some))
        ended.append(_steps(learner, *part, bad))
    if len(ended) == 1:
        return ended[0]
    parts, noised = zip(*ended, strict=True)
    personal = {
        name: torch.cat([one.personal[name] for one in parts]) for name in parts[0].personal
    }
    return Local(torch.cat([one.model_KD for one in parts]), personal), torch.cat(noised)


def _steps(
    learner: Learner,
    cohort: Cohort,
    batches: Batches,
    received_KD: Tensor,
    local: Local,
    hostile: Sequence[int],
) -> tuple[Local, Tensor]:
    """`take_steps` for clients that train in one pass."""
    device, clients = received_KD.device, torch.arange(len(received_KD), device=received_KD.device)
    # Copy everything that the steps need to the device first, so that no step waits for the host.
    index_KSB = to_device(batches.index_KSB, device)
    weight_KSB = to_device(batches.weight_KSB, device, received_KD.dtype)
    steps_K = to_device(batches.steps_K, device)
    done_SK = steps_K <= torch.arange(batches.steps, device=device)[:, None]
    hostile_K = torch.isin(clients, to_device(hostile, device)) if hostile else None
    if learner.hostile:
        hostile_K = torch.ones_like(clients, dtype=torch.bool)
    noised_K = torch.zeros(len(clients), dtype=torch.float64, device=device)
    for s in range(batches.steps):
        at_KB = index_KSB[:, s]
        batch = Batch(
            cohort.x_train_KN[clients[:, None], at_KB],
            cohort.y_train_KN[clients[:, None], at_KB],
            weight_KSB[:, s],
            whole=batches.whole(s),
        )
        task = learner.task(cohort, batches, received_KD, s, hostile_K)
        after = learner.personalizer.step(local, received_KD, batch, task)
        local = _hold(done_SK[s], local, after) if s >= min(batches.steps_K) else after
        if isinstance(task, PrivateTask):
            noised_K = noised_K + len(task.spent) * ~done_SK[s]
    return replace(local, velocity={}), noised_K


def _hold(done_K: Tensor, before: Local, after: Local) -> Local:
    """The values in `after`; clients without further batches keep the values in `before`."""

    def hold(old: Tensor, new: Tensor) -> Tensor:
        return torch.where(done_K.view(-1, *[1] * (new.ndim - 1)), old, new)

    return Local(
        hold(before.model_KD, after.model_KD),
        {name: hold(before.personal[name], new) for name, new in after.personal.items()},
        {name: hold(before.velocity.get(name, new), new) for name, new in after.velocity.items()},
    )
