"""The steps of a round: many clients train at once, each on its own sequence of mini-batches.

One pass should train at most a certain number of clients (`Stacked.trained_at_once`). If there are
more clients, the clients are split into groups. The groups train one after the other, each from its
first batch to its last batch. The tensors of a group therefore stay in cache, and a group with few
steps does not wait for a group with more steps. Clients that have taken all their steps leave their
group (see `padding_order`).

Legend: K clients, S steps in a round, B samples in a batch, D parameters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rampart_fl.shared.learning.training import personalizer_calls
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.padding_order import ALIGNED, order, step_ranges, unit
from rampart_fl.shared.learning.training.personalizers import Batch, StepState
from rampart_fl.shared.learning.training.privacy import PrivateTask
from rampart_fl.shared.learning.training.task import runs
from rampart_fl.shared.runtime.device import to_device


def take_steps(
    learner: Learner,
    cohort: Cohort,
    batches: Batches,
    received_KD: Tensor,
    local: StepState,
    hostile: Sequence[int] = (),
) -> tuple[StepState, Tensor]:
    """Takes all steps; returns models and state, and each client's number of noised gradients (K,).

    Args:
        learner: network, personalizer, optimizer.
        cohort: the clients' data.
        batches: which samples the clients see in which step.
        received_KD: the models with which the round began.
        local: the models and state before the first step; the models equal `received_KD`.
        hostile: positions of the clients that train without the objective's terms and without
            noise.
    """
    groups = runs(len(received_KD), learner.network.trained_at_once(cohort.like(batches.width)))
    apart = _apart(learner, len(received_KD))
    placed = [some.start + k for some in groups for k in order(batches.steps_K[some], apart)]
    at_K = to_device(placed, received_KD.device, torch.long)
    hostile_K = _among(placed, hostile, learner, received_KD.device)
    ended, noised_K = local.blank(), torch.zeros_like(at_K, dtype=torch.float64)
    stay = placed == list(range(len(placed)))
    for some in groups:
        start_KD, own = received_KD[some], local.part(some).personal
        if not stay:
            start_KD = _placed(received_KD, at_K, some)
            own = {name: _placed(tensor, at_K, some) for name, tensor in local.personal.items()}
        part = (cohort.part(some), batches.pick(placed[some]), start_KD, StepState(start_KD, own))
        bad_K = None if hostile_K is None else hostile_K[some]
        for left, after, noised in _steps(learner, *part, at_K[some] - some.start, bad_K, apart):
            # If this condition is true, all clients have finished at the same time.
            if stay and len(after.model_KD) == len(placed):
                return replace(after, velocity={}), noised
            to_K = at_K[some][left]
            ended.put(to_K, after)
            noised_K[to_K] = noised
    return ended, noised_K


def _placed(tensor_KD: Tensor, at_K: Tensor, some: slice) -> Tensor:
    """The rows of the clients whose places are in `some`.

    Memory alignment affects the last bits of the result (see `padding_order`). The rows are
    therefore aligned as they would be in a copy of all rows.
    """
    skipped = some.start % ALIGNED
    return tensor_KD[at_K[some.start - skipped : some.stop]][skipped:]


def _apart(learner: Learner, clients: int) -> int:
    """The unit of `padding_order`, which moves clients only by multiples of this number of places.

    In two cases, a step may split every batch, so that the per-sample gradients fit in cache: with
    differential privacy, and with a term that reads samples. How batches are split depends on the
    number of clients, and affects the last bits of the trained models. In these two cases, the
    function therefore returns the number of clients K. With this unit, every client keeps its
    place, and stays in its group until the last step.
    """
    split = learner.training.privacy or any(term.reads_samples for term in learner.terms)
    return clients if split else unit(learner.spec.dim)


def _steps(
    learner: Learner,
    cohort: Cohort,
    batches: Batches,
    received_KD: Tensor,
    local: StepState,
    clients_K: Tensor,
    hostile_K: Tensor | None,
    apart: int,
) -> Iterator[tuple[slice, StepState, Tensor]]:
    """Like `take_steps`, but for one group; yields the results of clients that leave the group.

    Args:
        clients_K: for each place (see `padding_order`), the client's row in the cohort. The cohort
            lists the clients in its own order; all other arguments list the clients in the order of
            their places.
    """
    device = received_KD.device
    # Copy the data for all steps to the device first, so that no step waits for the host.
    index_KSB = to_device(batches.index_KSB, device)
    weight_KSB = to_device(batches.weight_KSB, device, received_KD.dtype)
    steps_K = to_device(batches.steps_K, device)
    done_SK = steps_K <= torch.arange(batches.steps, device=device)[:, None]
    noised_K = torch.zeros(len(clients_K), dtype=torch.float64, device=device)
    for count, steps in step_ranges(batches.steps_K, apart):
        some, rest = slice(count), slice(count, len(local.model_KD))
        if count < rest.stop:
            yield rest, local.part(rest), noised_K[rest]
            local = local.part(some)
        left, start_KD, row_K = batches.part(some), received_KD[some], clients_K[some]
        bad_K = None if hostile_K is None else hostile_K[some]
        for s in steps:
            at = (row_K[:, None], index_KSB[some, s])
            x_KB, y_KB = cohort.x_train_KN[at], cohort.y_train_KN[at]
            # `whole` is False as soon as one client of the group has taken all its steps, because
            # this client's batch is then only padding.
            batch = Batch(x_KB, y_KB, weight_KSB[some, s], whole=batches.whole(s))
            task = learner.task(cohort, left, start_KD, s, bad_K, row_K)
            after = personalizer_calls.step(learner.personalizer, local, start_KD, batch, task)
            local = _hold(done_SK[s, some], local, after) if s >= min(left.steps_K) else after
            if isinstance(task, PrivateTask):
                noised_K[some] += len(task.spent) * ~done_SK[s, some]
    last = slice(len(local.model_KD))
    yield last, local, noised_K[last]


def _among(
    placed: Sequence[int], hostile: Sequence[int], learner: Learner, device: torch.device
) -> Tensor | None:
    """Whether the client at each place is hostile (bool); None if all clients are honest."""
    if learner.hostile:
        return torch.ones(len(placed), dtype=torch.bool, device=device)
    return to_device([k in hostile for k in placed], device) if hostile else None


def _hold(done_K: Tensor, before: StepState, after: StepState) -> StepState:
    """Returns `before` for clients that have taken all their steps, and `after` for all others."""

    def hold(old: Tensor, new: Tensor) -> Tensor:
        return torch.where(done_K.view(-1, *[1] * (new.ndim - 1)), old, new)

    return StepState(
        hold(before.model_KD, after.model_KD),
        {name: hold(before.personal[name], new) for name, new in after.personal.items()},
        {name: hold(before.velocity.get(name, new), new) for name, new in after.velocity.items()},
    )
