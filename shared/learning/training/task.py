"""One step of local training: the gradient of a client's objective, and the optimizer.

Legend: K clients, B samples in a batch, C classes, D parameters, P models per client.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from rampart_fl.shared.experiment.schema import Training
from rampart_fl.shared.learning.network.heads import head_of
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import unflatten
from rampart_fl.shared.learning.training.cohort import Cohort, StepRandomness
from rampart_fl.shared.learning.training.objectives import Objective, Point
from rampart_fl.shared.learning.training.personalizers import Batch, StepState
from rampart_fl.shared.learning.training.scoring import Scoring
from rampart_fl.shared.rounding import ceil_div

SMALLEST_RATE = 1e-20
"""Smaller learning rates leave running statistics unchanged, because the change of a statistic,
divided by the learning rate, may overflow in float32."""


@dataclass(frozen=True, eq=False)
class LocalTask:
    """The local objective and its optimizer, in the form that a personalizer's step uses.

    Args:
        network: applies K parameter vectors to K batches.
        scoring: the task's loss.
        training: the experiment's `training` table.
        terms: the objective's terms besides the mean loss; terms with weight 0 change nothing.
        cohort: the data of all clients that train together, including clients that have finished
            their steps.
        received_KD: the models with which the round began. Terms of the objective can compare other
            models with these models.
        draws: each client's random numbers for this step.
        hostile_K: the clients that train without the terms; None means that all clients train with
            the terms.
        clients_K: the position in the cohort of each client that takes this step. If `clients_K` is
            None, all clients take the step, in the order of the cohort.
        prior_KC: values that training adds to the logits of the models that clients upload.
        rate: factor by which this round multiplies the learning rate.
    """

    network: Stacked
    scoring: Scoring
    training: Training
    terms: tuple[Objective, ...]
    cohort: Cohort
    received_KD: Tensor
    draws: StepRandomness
    hostile_K: Tensor | None = None
    clients_K: Tensor | None = None
    prior_KC: Tensor | None = None
    rate: float = 1.0

    @property
    def learning_rate(self) -> float:
        """The step size η in this round."""
        return self.training.learning_rate * self.rate

    def head(self, layer: str | None) -> Tensor:
        """A bool mask (D,) of the coordinates that belong to the head."""
        network = self.network
        return head_of(network.module, network.spec, layer, self.received_KD.device)

    def balanced(self) -> "LocalTask":
        """The same task, with the balanced softmax for the models that are trained for upload.

        The loss is CE(z_c + log n_c): the cross entropy of the logits z, after log n_c is added to
        the logit of each class c. Here, n_c is the number of the client's training samples of class
        c. Classes without training samples are left out of the softmax (Ren et al., Balanced
        meta-softmax, 2020).
        """
        counts_KC = self.cohort.counts_KC
        if self.clients_K is not None:
            counts_KC = counts_KC[self.clients_K]
        return replace(self, prior_KC=counts_KC.to(self.received_KD.dtype).log())

    def with_reference(self, reference_KD: Tensor) -> "LocalTask":
        """The same task, but its terms compare models with the given models (K, D)."""
        return replace(self, received_KD=reference_KD)

    def gradients(
        self, batch: Batch, *models_KD: Tensor, personal: Sequence[Tensor] = ()
    ) -> tuple[Tensor, ...]:
        """The gradients (K, D) of the objective, first at the models, then at the personal models.

        In the entries that hold the running statistics s, the result is (s - s') / η, where s' are
        the statistics after the batch. A step of size η thus turns s into s'. If η is smaller than
        `SMALLEST_RATE`, the result is 0 in these entries. The objective's terms evaluate the
        network in inference mode.
        """
        together, end = (*models_KD, *personal), self.network.spec.trainable
        priors = [self.prior_KC] * len(models_KD) + [None] * len(personal)
        began = max(len(self.cohort.train_K), len(batch.x_KB))
        gradients = list(
            mean_loss_gradients(self.network, self.scoring, batch, together, priors, began)
        )
        if self.network.spec.statistics:
            moves = self.learning_rate >= SMALLEST_RATE
            gradients = [
                torch.cat([g[:, :end], g[:, end:] / self.learning_rate], 1)
                if moves
                else self.parameters(g)
                for g in gradients
            ]
        for term in self.terms:
            if term.weight == 0:
                continue
            for p in range(len(together) if term.personal else len(models_KD)):
                point = Point(self.network, together[p], self.received_KD, batch, self.draws)
                gradients[p] = gradients[p] + self._of_the_honest(
                    self.parameters(term.checked_gradient(point))
                )
        return tuple(gradients)

    def parameters(self, vector_KD: Tensor) -> Tensor:
        """The given vectors, but with 0 in place of every running statistic.

        Neither the objective's terms nor weight decay apply to running statistics.
        """
        if not self.network.spec.statistics:
            return vector_KD
        end = self.network.spec.trainable
        return torch.cat([vector_KD[:, :end], torch.zeros_like(vector_KD[:, end:])], 1)

    def _of_the_honest(self, gradient_KD: Tensor) -> Tensor:
        if self.hostile_K is None:
            return gradient_KD
        return gradient_KD.masked_fill(self.hostile_K[:, None], 0)

    def descend(self, local: StepState, gradient_KD: Tensor) -> StepState:
        """Takes a step of SGD with momentum and weight decay, as in torch.optim.

        First, the momentum v of a model w becomes μ v + ∇L + decay·w, where ∇L is the gradient, and
        μ is the experiment's momentum factor. Then w becomes w - η v, where η is the learning rate.

        The caller must not use the gradient afterwards, because the new model may overwrite it.
        """
        if self.training.weight_decay:
            decay_KD = self.training.weight_decay * self.parameters(local.model_KD)
            gradient_KD = gradient_KD + decay_KD
        if self.training.momentum:
            velocity_KD = local.velocity.get("model")
            if velocity_KD is not None:
                gradient_KD = self.training.momentum * self.parameters(velocity_KD) + gradient_KD
            local = replace(local, velocity={"model": gradient_KD})
        # Write the new model into the memory of the gradient, which is no longer needed. Allocating
        # new memory would make the step a third slower.
        out = None if self.training.momentum else gradient_KD
        model_KD = torch.sub(local.model_KD, gradient_KD, alpha=self.learning_rate, out=out)
        return replace(local, model_KD=model_KD)


def mean_loss_gradients(
    network: Stacked,
    scoring: Scoring,
    batch: Batch,
    models: Sequence[Tensor],
    priors: Sequence[Tensor | None] = (),
    clients: int | None = None,
) -> tuple[Tensor, ...]:
    """The gradient ∇L (K, D) of the batch's mean loss at each of P models.

    In the entries that hold running statistics, the result is the statistics before the batch minus
    the statistics after it. All models run in one pass if `Stacked.trained_at_once` allows one
    pass, and in several passes if not.

    Args:
        network: applies parameter vectors to batches.
        scoring: the task's loss.
        batch: the samples.
        models: P tensors (K, D).
        priors: for each of the P models, None or a tensor (K, C) that is added to the model's
            logits (K, B, C).
        clients: number of clients that decides between one pass and several passes; None means K.
            The caller gives the same number in every step, even after some clients have finished
            their steps. Otherwise, the decision could change between steps, which would change the
            last bits of the result.
    """
    p, k = len(models), len(batch.x_KB)
    added = list(priors) or [None] * p
    most = network.trained_at_once(batch.x_KB)
    if p * (clients or k) <= most:
        return _at_once(network, scoring, batch, models, added).chunk(p)
    pieces = runs(k, most)
    return tuple(
        _beside(
            [
                _gradients(
                    network,
                    scoring,
                    batch.part(own),
                    model_KD[own],
                    None if prior is None else prior[own],
                )
                for own in pieces
            ]
        )
        for model_KD, prior in zip(models, added, strict=True)
    )


def _at_once(
    network: Stacked,
    scoring: Scoring,
    batch: Batch,
    models: Sequence[Tensor],
    priors: Sequence[Tensor | None],
) -> Tensor:
    """Like `mean_loss_gradients`, but in one pass; the result has the shape (P * K, D).

    On a GPU, the pass is a CUDA graph. Without the graph, the host would take longer to launch the
    kernels than the GPU takes to compute the pass.
    """
    p, whole = len(models), batch.whole
    added = tuple(prior is not None for prior in priors)

    def gradients(*tensors: Tensor) -> Tensor:
        x, y, weight = (_beside([t] * p) for t in tensors[:3])
        prior, rest = None, iter(tensors[3 + p :])
        if any(added):
            zero = torch.zeros_like(tensors[-1])
            prior = _beside([next(rest) if one else zero for one in added])
        together = Batch(x, y, weight, whole)
        return _gradients(network, scoring, together, _beside(tensors[3 : 3 + p]), prior)

    tensors = (batch.x_KB, batch.y_KB, batch.weight_KB, *(model.detach() for model in models))
    tensors += tuple(prior for prior in priors if prior is not None)
    if network.can_record(batch.x_KB):
        return network.graphs.run(gradients, (scoring, whole, added), tensors)
    return gradients(*tensors)


def _gradients(
    network: Stacked, scoring: Scoring, batch: Batch, models_KD: Tensor, prior_KC: Tensor | None
) -> Tensor:
    """Like `mean_loss_gradients`, but for K models in one pass; the result has the shape (K, D)."""
    spec, named = network.spec, unflatten(models_KD.detach(), network.spec)
    leaves = [named[name].requires_grad_() for name, _, _ in spec.parameters]
    logits, moved_KS = network.train(named, batch.x_KB, batch.weight_KB > 0, batch.whole)
    if prior_KC is not None:
        logits = logits + prior_KC[:, None]
    loss = (scoring.losses(logits, batch.y_KB) * batch.weight_KB).sum()
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    # Copy each tensor's gradient directly to its place in the vector. If the gradient were computed
    # with respect to the whole vector, every number of the gradient would be copied twice.
    gradient_KD = torch.empty_like(models_KD, memory_format=torch.contiguous_format)
    for (_, start, stop), leaf, own in zip(spec.parameters, leaves, gradients, strict=True):
        place = gradient_KD[:, start:stop].view_as(leaf)
        place.zero_() if own is None else place.copy_(own)
    if moved_KS is not None:
        torch.sub(models_KD[:, spec.trainable :], moved_KS, out=gradient_KD[:, spec.trainable :])
    return gradient_KD


def runs(count: int, most: int) -> list[slice]:
    """Splits the range 0 .. count - 1 into the fewest slices with at most `most` numbers each.

    >>> runs(5, 3)
    [slice(0, 2, None), slice(2, 5, None)]
    """
    parts = ceil_div(count, most)
    ends = [count * i // parts for i in range(parts + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]


def _beside(tensors: Sequence[Tensor]) -> Tensor:
    """The concatenated tensors; a single tensor is not copied."""
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
