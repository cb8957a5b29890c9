"""Local training and evaluation, for one client or for many clients at once.

An agent runs `train_round`, which calls `train` for one client. The simulator calls `train` for
many clients. Agents and the simulator therefore use the same formulas and random draws.

Legend: K clients, N training samples (padded to the largest client), B samples in a batch,
S steps in a round, T samples of any set, D parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.personalizers import Offers, StepState
from rampart_fl.shared.learning.training.privacy import STEPS, output_noise, spent_epsilon
from rampart_fl.shared.learning.training.scoring import hits
from rampart_fl.shared.learning.training.steps import take_steps
from rampart_fl.shared.rounding import ceil_div
from rampart_fl.shared.runtime.device import to_device

EVALUATED = 4096
"""Highest number of samples in one forward pass of an evaluation, over all clients together."""
TILE = 16
"""A forward pass has at least this many samples per client, if they fit. For fewer samples,
libraries use other matrix kernels, whose results differ in the last bits. If larger clients are in
the same tensor, a pass rounds the number of samples per client up to a multiple of `TILE`."""


@dataclass(frozen=True, eq=False)
class CohortResult:
    """What K clients computed in a round.

    Args:
        update_KD: the trained model minus the received model, plus output noise if there is any.
        personal: personal state after the round, tensors (K, ...).
        metrics: for each metric, a tensor (K,) in float64, keyed by the metric's name.
    """

    update_KD: Tensor
    personal: dict[str, Tensor]
    metrics: dict[str, Tensor]


def train(
    learner: Learner,
    cohort: Cohort,
    batches: Batches,
    received_KD: Tensor,
    personal: Mapping[str, Tensor],
    measure: bool = True,
    hostile: Sequence[int] = (),
    offers: Offers = (),
) -> CohortResult:
    """One round of K clients: evaluate the received models, train, evaluate the trained models.

    Args:
        learner: network, personalizer, optimizer.
        cohort: the clients' data.
        batches: which samples the clients see in which step.
        received_KD: the models that the clients received.
        personal: the clients' personal state, tensors (K, ...).
        measure: whether to evaluate models; if not, `metrics` has no accuracies or losses.
        hostile: positions of the clients that train without the objective's terms and without
            noise.
        offers: other clients' models, for personalizers that start from a mix of models.
    """
    metrics = {"train_samples": _counts(cohort.train_K), "test_samples": _counts(cohort.test_K)}
    own, base_KD = {name: one for name, one in personal.items() if name != STEPS}, received_KD
    received_KD, reported = learner.personalizer.start(
        base_KD, own, offers, lambda models_KD: _held_loss(learner, cohort, batches, models_KD)
    )
    metrics |= reported
    if measure:
        metrics |= _test(learner, cohort, received_KD, "customized")
        metrics["loss_before"] = _loss(learner, cohort, received_KD)

    begun = StepState(received_KD, learner.personalizer.begin(received_KD, own))
    local, noised_K = take_steps(learner, cohort, batches, received_KD, begun, hostile)

    if measure:
        metrics |= _test(learner, cohort, local.model_KD, "local")
        metrics["loss_after"] = _loss(learner, cohort, local.model_KD)
        for term in learner.terms:
            metrics |= term.measure(
                learner.network,
                local.model_KD,
                cohort.x_train_KN,
                cohort.train_K,
                batches.draws(0),
            )
        kept_KD = learner.personalizer.personalized(local.model_KD, local.personal)
        if kept_KD is not None:
            metrics |= _test(learner, cohort, kept_KD, "personalized")
    update_KD, kept = local.model_KD - base_KD, dict(local.personal)
    if learner.training.output_noise:
        noise_KD = output_noise(learner.training.output_noise, batches.draws(0), update_KD)
        noise_KD[list(range(len(noise_KD)) if learner.hostile else hostile)] = 0
        update_KD = update_KD + noise_KD
    if learner.training.privacy is not None:
        kept[STEPS] = personal[STEPS] + noised_K if STEPS in personal else noised_K
        metrics["epsilon"] = spent_epsilon(learner.training, cohort.train_K, kept[STEPS])
    return CohortResult(update_KD, kept, metrics)


def merge(parts: Sequence[CohortResult], order: Sequence[int]) -> CohortResult:
    """Merges the results of separate groups of clients.

    Args:
        parts: what each group computed.
        order: for each row of the concatenated parts, the position of its client in the result.
    """
    back = torch.tensor(order).argsort()

    def stack(tensors: Sequence[Tensor]) -> Tensor:
        together = torch.cat(list(tensors))
        return together[to_device(back, together.device)]

    first = parts[0]
    return CohortResult(
        stack([part.update_KD for part in parts]),
        {name: stack([part.personal[name] for part in parts]) for name in first.personal},
        {name: stack([part.metrics[name] for part in parts]) for name in first.metrics},
    )


@dataclass(frozen=True, eq=False)
class LocalResult:
    """What one client computed in a round.

    Args:
        update_D: the trained model minus the received model, plus output noise if there is any.
        personal: the client's personal state after the round.
        metrics: numbers by name. `train_samples`, `test_samples`: sample counts.
            `correct_customized`, `correct_local`, `correct_personalized`: numbers of test samples
            that are classified correctly by the model before training (the received model, unless
            the personalizer has changed it), by the trained model, and by the client's own model
            (if there is one). `error_customized`, ...: in an estimation task, squared errors summed
            over the test samples, instead of numbers of correct samples. `loss_before`,
            `loss_after`: mean loss on the training samples, of the model before training and of the
            trained model. `triggered_samples`: if there is a trigger, the number of test samples
            whose class is not the target class. `fooled_customized`, ...: the number of these
            samples that the model assigns to the target class after the trigger is added.
            `epsilon`: under differential privacy, the ε spent so far. Some objective terms add
            entries that they measure on the trained model, such as `jacobian_norm`. Some
            personalizers add entries that they compute before training, such as `weight_00`.
    """

    update_D: Tensor
    personal: dict[str, Tensor]
    metrics: dict[str, float]


def train_round(
    learner: Learner,
    data: ClientData,
    received_D: Tensor,
    personal: Mapping[str, Tensor],
    *,
    seed: int,
    client: str,
    round_: int,
    secret: int | None = None,
    offered: Sequence[Tensor] = (),
) -> LocalResult:
    """Runs one client's round; the same arguments always give the same bytes.

    Args:
        learner: from `Learner.of(experiment)`.
        data: the client's own data.
        received_D: the model that the client's ticket names.
        personal: the client's personal state; before the first round,
            `learner.first_state(initial_D)`.
        seed: the experiment's seed.
        client: the client's id, from which its random numbers are derived.
        round_: the round's number.
        secret: secret seed for noise and private batches; by default, the experiment's seed.
        offered: other clients' models (D,) that the client's ticket names.
    """
    sizes, held_out = [len(data.y_train)], learner.personalizer.held_out
    batches = Batches.draw(sizes, [client], learner.training, seed, round_, secret, held_out)
    stacked = {name: tensor.unsqueeze(0) for name, tensor in personal.items()}
    cohort = Cohort.of([data], received_D.dtype, received_D.device)
    there_K = torch.ones(1, dtype=torch.float64, device=received_D.device)
    offers = [(model_D.unsqueeze(0), there_K) for model_D in offered]
    trained = train(learner, cohort, batches, received_D.unsqueeze(0), stacked, offers=offers)
    return LocalResult(
        trained.update_KD[0],
        unstack(trained.personal, 0),
        {name: column.item() for name, column in trained.metrics.items()},
    )


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
        "test_samples": _counts(cohort.test_K),
        **_test(learner, cohort, received_KD, "customized"),
    }
    kept_KD = learner.personalizer.personalized(received_KD, personal)
    if kept_KD is not None:
        metrics |= _test(learner, cohort, kept_KD, "personalized")
    return metrics


def unstack(personal: Mapping[str, Tensor], position: int) -> dict[str, Tensor]:
    """A copy of one client's part of the stacked personal state."""
    return {name: tensor[position].clone() for name, tensor in personal.items()}


def _test(learner: Learner, cohort: Cohort, models_KD: Tensor, kind: str) -> dict[str, Tensor]:
    """Tests each client's model on its own test samples; returns sums (K,), keyed by metric."""
    x_KT, y_KT, trigger = cohort.x_test_KT, cohort.y_test_KT, learner.trigger
    scores_KT = _each(learner, models_KD, x_KT, y_KT, cohort.test_K, learner.scoring.scores)
    counts = {f"{learner.scoring.counted}_{kind}": scores_KT.sum(1)}
    if trigger is not None:
        shown_KT = trigger.with_trigger(x_KT.flatten(0, 1)).view_as(x_KT)
        target_KT = torch.full_like(y_KT, trigger.target)
        fooled_KT = _each(learner, models_KD, shown_KT, target_KT, cohort.test_K, hits)
        others_KT = (y_KT != trigger.target).double()
        counts["triggered_samples"] = _within(others_KT, cohort.test_K).sum(1)
        counts[f"fooled_{kind}"] = (fooled_KT * others_KT).sum(1)
    return counts


def _loss(learner: Learner, cohort: Cohort, models_KD: Tensor) -> Tensor:
    """Mean loss (K,) of every client's model on the client's own training set."""
    x_KN, y_KN = cohort.x_train_KN, cohort.y_train_KN
    losses_KN = _each(learner, models_KD, x_KN, y_KN, cohort.train_K, learner.scoring.losses)
    return losses_KN.sum(1) / to_device(_counts(cohort.train_K), losses_KN.device)


def _held_loss(learner: Learner, cohort: Cohort, batches: Batches, models_KD: Tensor) -> Tensor:
    """Mean loss (K,) of every client's model on the client's held-out samples."""
    held_KV = to_device(pad_sequence(list(batches.held), batch_first=True), models_KD.device)
    client_K1 = torch.arange(len(models_KD), device=models_KD.device)[:, None]
    x_KV, y_KV = cohort.x_train_KN[client_K1, held_KV], cohort.y_train_KN[client_K1, held_KV]
    sizes = [len(one) for one in batches.held]
    losses_KV = _each(learner, models_KD, x_KV, y_KV, sizes, learner.scoring.losses)
    return losses_KV.sum(1) / to_device(_counts(sizes), losses_KV.device)


def _each(
    learner: Learner,
    models_KD: Tensor,
    x_KT: Tensor,
    y_KT: Tensor,
    sizes: Sequence[int],
    score: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Scores (K, T) in float64; 0 for padding.

    A pass takes as many samples of one client as fit. It takes several clients only if all of their
    samples fit. A pass takes no more padding than its largest client needs, rounded up to a
    multiple of `TILE`.
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


def _counts(sizes: Sequence[int]) -> Tensor:
    return torch.tensor(sizes, dtype=torch.float64)
