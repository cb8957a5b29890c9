"""A round of local training, for one client or for many clients at once.

An agent runs `train_round`, which calls `train` for one client. The simulator calls `train` for
many clients. Agents and the simulator therefore use the same formulas and random draws.

Legend: K clients, N training samples (padded to the largest client), B samples in a batch,
S steps in a round, D parameters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training import personalizer_calls
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.evaluation import (
    counts,
    held_out_loss,
    score_sums,
    training_loss,
)
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.personalizers import Offers, StepState
from rampart_fl.shared.learning.training.privacy import STEPS, output_noise, spent_epsilon
from rampart_fl.shared.learning.training.steps import take_steps
from rampart_fl.shared.runtime.device import to_device


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
    metrics = {"train_samples": counts(cohort.train_K), "test_samples": counts(cohort.test_K)}
    own, base_KD = {name: one for name, one in personal.items() if name != STEPS}, received_KD
    personalizer = learner.personalizer
    received_KD, reported = personalizer_calls.start(
        personalizer,
        base_KD,
        own,
        offers,
        lambda models_KD: held_out_loss(learner, cohort, batches, models_KD),
    )
    metrics |= reported
    if measure:
        metrics |= score_sums(learner, cohort, received_KD, "customized")
        metrics["loss_before"] = training_loss(learner, cohort, received_KD)

    begun = personalizer_calls.begin(personalizer, received_KD, own)
    local, noised_K = take_steps(learner, cohort, batches, received_KD, begun, hostile)
    local = replace(local, personal=_finite(local.personal, {**begun.personal, **own}))

    if measure:
        metrics |= _measure_trained(learner, cohort, batches, local)
    update_KD, kept = local.model_KD - base_KD, dict(local.personal)
    if learner.training.output_noise:
        noise_KD = output_noise(learner.training.output_noise, batches.draws(0), update_KD)
        noise_KD[list(range(len(noise_KD)) if learner.hostile else hostile)] = 0
        noise_KD[:, learner.spec.trainable :] = 0  # Noise can make running variances negative.
        update_KD = update_KD + noise_KD
    if learner.training.privacy is not None:
        kept[STEPS] = personal[STEPS] + noised_K if STEPS in personal else noised_K
        metrics["epsilon"] = spent_epsilon(learner.training, cohort.train_K, kept[STEPS])
    return CohortResult(update_KD, kept, metrics)


def _finite(after: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Personal state after a round; a client whose training diverged keeps its earlier state."""
    if not after:
        return after
    finite_K = torch.stack(
        [one.reshape(len(one), -1).isfinite().all(1) for one in after.values()]
    ).all(0)
    if bool(finite_K.all()):
        return after
    return {
        name: torch.where(finite_K.view(-1, *[1] * (one.ndim - 1)), one, before[name])
        for name, one in after.items()
    }


def _measure_trained(
    learner: Learner, cohort: Cohort, batches: Batches, local: StepState
) -> dict[str, Tensor]:
    """Metrics (K,) of the trained models and of the personal models."""
    metrics = score_sums(learner, cohort, local.model_KD, "local")
    metrics["loss_after"] = training_loss(learner, cohort, local.model_KD)
    for term in learner.terms:
        metrics |= term.checked_measure(
            learner.network, local.model_KD, cohort.x_train_KN, cohort.train_K, batches.draws(0)
        )
    kept_KD = personalizer_calls.personalized(learner.personalizer, local.model_KD, local.personal)
    if kept_KD is not None:
        metrics |= score_sums(learner, cohort, kept_KD, "personalized")
    return metrics


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
            `correct_customized`: the number of test samples that the model classifies correctly
            before training. This model is the received model, unless the personalizer has changed
            it. `correct_local`: the same number for the trained model. `correct_personalized`: the
            same number for the client's own model, if there is one. `error_customized`, ...: in an
            estimation task, these sums of squared errors over the test samples replace the numbers
            of correct samples. `loss_before`, `loss_after`: mean loss on the training samples,
            before and after training. `triggered_samples`: if there is a trigger, the number of
            test samples whose class is not the target class. `fooled_customized`, ...: the number
            of these samples that the model assigns to the target class after the trigger is added.
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


def unstack(personal: Mapping[str, Tensor], position: int) -> dict[str, Tensor]:
    """A copy of one client's part of the stacked personal state."""
    return {name: tensor[position].clone() for name, tensor in personal.items()}
