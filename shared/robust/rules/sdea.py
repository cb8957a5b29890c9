"""SDEA: learns weights so that the mixed model is confident and predicts all classes equally often.

Legend: M rows, V views, B samples of a batch, P public samples, C classes, D parameters.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rampart_fl.shared.robust import clustering, linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.context import Need
from rampart_fl.shared.robust.public_evaluation import evaluate_models, information, public_samples
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.runtime.device import to_device


@dataclass(frozen=True, eq=False)
class LearnedWeights:
    """The learned weights, and the losses at the start and at the end of learning.

    Args:
        weights_M: the rows' weights, which are the softmax of the logits and add up to 1.
        first, last: mean loss over the first epoch and over the last epoch.
    """

    weights_M: Tensor
    first: float
    last: float


@rules.register("sdea")
class SDEA(Rule):
    """Weighted mean whose weights make the mixed model confident and its predictions balanced.

    The result is sum_i a_i x_i with the weights a = softmax(M). The rule learns the logits M that
    minimize mean H(P) - H(mean P) on public samples.

    Here, P are the predictions of the mixed model `reference + sum_i a_i x_i`, and H is the
    entropy. After learning, the weights are grouped into clusters. The rows of the cluster with the
    lowest mean weight keep their weights. All other rows share the remaining weight equally. If
    there is only one cluster, weights are uniform. FINCH, the default clustering, never puts a
    single row into a cluster of its own, so it never isolates a single attacker. If there are at
    most three rows, FINCH puts all of them into one cluster, so their weights are uniform.
    Clustering does not set any weight to 0.

    The samples need no labels. According to the paper, the rule fails if the samples are
    meaningless, such as noise. If a gradient is not finite during learning, the rule leaves out the
    row with the largest norm. It then learns the weights again from the start.

    >>> import torch
    >>> from rampart_fl.shared.robust import Context, aggregate
    >>> from rampart_fl.shared.robust.context import PublicData
    >>> def predict(models_KD, x_KB):  # logits (w x, 0) of two classes
    ...     z_KB = models_KD[:, :1] * x_KB[..., 0]
    ...     return torch.stack([z_KB, torch.zeros_like(z_KB)], dim=2)
    >>> public = PublicData(torch.tensor([[-1.0], [1.0]]))
    >>> context = Context(reference_D=torch.zeros(1), predict=predict, public=public)
    >>> stage = {"name": "sdea", "epochs": 500}
    >>> aggregate(torch.tensor([[1.0], [1.0], [1.0], [-1.0], [-1.0]]), stage, context=context)
    tensor([0.9588])
    """

    paper = "SDEA, equations 3 to 7"
    breakdown = "none"
    complexity = "O(nd) and one forward and backward pass per step; evaluates n models once"
    passes = "in memory only: reads all rows in each step, and runs every client's model"
    streams = False
    learning_rate: float = Field(default=0.005, gt=0)
    """Learning rate of Adam on the logits M. In every round, all logits start at 0."""
    weight_decay: float = Field(default=1e-5, ge=0)
    """L2 penalty on the logits."""
    epochs: int = Field(default=20, ge=1)
    """Number of passes over the public samples in a round."""
    batch_size: int = Field(default=64, ge=1)
    """Number of public samples per step. In a small batch, class frequencies are mostly due to
    chance, so the reward for `diversity` is noisy."""
    views: int = Field(default=1, ge=1)
    """Number of random views of each batch if the samples are augmented. The losses of the views
    are averaged. The paper's code uses two views."""
    sharpness: bool = True
    """Whether the rule rewards weights with which the mixed model predicts confidently."""
    diversity: bool = True
    """Whether the rule rewards weights with which the mixed model predicts all classes equally
    often."""
    clusters: Literal["finch", "finch_first", "k_means", "dbscan", "none"] = "finch_first"
    """How the weights are grouped. `finch_first`, the default, takes FINCH's first partition, as in
    the paper's equation 14 and in its code. FINCH's first partition can have more than two groups.
    `finch`, our variant, runs FINCH until two groups are left, because the paper distinguishes a
    cooperative and a hostile group. `k_means` splits the weights into two clusters by k-means;
    `dbscan` uses DBSCAN; `none` leaves the learned weights unchanged."""
    radius: float = Field(default=0.25, gt=0)
    """Neighbourhood radius of `dbscan` in units of the uniform weight 1/n; the paper states no
    value.
    """

    @model_validator(mode="after")
    def _rewards_something(self) -> "SDEA":
        if not (self.sharpness or self.diversity):
            raise ValueError("sharpness and diversity are both off, so the rule has no objective")
        return self

    def needs(self) -> frozenset[Need]:
        return frozenset({"predict", "public"})

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        public_samples(context, self.name)
        kept, learned = list(range(len(rows))), None
        while kept and learned is None:
            learned = self.learn(rows.keep(kept), context)
            if learned is None:
                lengths = linalg.norms(rows.keep(kept))
                kept.pop(int(lengths.argmax()))
        weights_M, learned_M = torch.zeros(2, len(rows), dtype=torch.float64).unbind()
        values: dict[str, float | int | str] = {"left_out": len(rows) - len(kept)}
        if learned is not None:
            learned_M[kept] = weights_M[kept] = learned.weights_M
            values |= {"first_loss": learned.first, "loss": learned.last}
            if self.clusters != "none":
                labels_M = self.group(learned.weights_M)
                weights_M[kept] = cluster_weights(learned.weights_M, labels_M)
                values |= {"clusters": int(labels_M.max()) + 1}
        columns = {
            "weight": weights_M,
            "learned": learned_M,
            "entropy": evaluate_models(rows, context, self.name).entropy_M,
        }
        return rows.combine(weights_M), state, Report(self.name, rows.ids, columns, values)

    def learn(self, rows: Rows, context: Context) -> LearnedWeights | None:
        """Learns weights for these rows; returns None if a gradient was not finite at some step."""
        _, x_P, _ = public_samples(context, self.name)
        draws = context.generator(self.name)
        logits_M = torch.zeros(len(rows), dtype=torch.float64)
        adam = torch.optim.Adam([logits_M], self.learning_rate, weight_decay=self.weight_decay)
        losses: list[Tensor] = []
        for _ in range(self.epochs):
            for at_B in torch.split(torch.randperm(len(x_P), generator=draws), self.batch_size):
                x_B = x_P.index_select(0, to_device(at_B, x_P.device))
                loss, gradient_M = self.step(rows, logits_M.softmax(0), x_B, context, draws)
                if not bool(gradient_M.isfinite().all()):
                    return None
                losses.append(loss)
                logits_M.grad = gradient_M
                adam.step()
        steps = len(losses) // self.epochs
        losses_S = torch.stack(losses).double().cpu()
        first, last = float(losses_S[:steps].mean()), float(losses_S[-steps:].mean())
        return LearnedWeights(logits_M.softmax(0), first, last)

    @torch.enable_grad()
    def step(
        self, rows: Rows, weights_M: Tensor, x_B: Tensor, context: Context, draws: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """The loss L on a batch of public samples, and its gradient (M,) with respect to logits M.

        The weights are a = softmax(M). One backward pass through the mixed model w suffices,
        because dL/da_i = <dL/dw, x_i> for each row x_i, and
        dL/dM_i = a_i (dL/da_i - sum_j a_j dL/da_j). If the rule mixed the models reference + x_i
        instead, the gradient would be the same: the reference cancels in this difference.
        """
        assert context.reference_D is not None and context.predict is not None
        assert context.public is not None
        model_D = (context.reference_D + rows.combine(weights_M)).requires_grad_()
        augment = context.public.augment
        views = [x_B] if augment is None else [augment(x_B, draws) for _ in range(self.views)]
        logits_VBC = context.predict(model_D.unsqueeze(0), torch.cat(views).unsqueeze(0))[0]
        losses = [
            information(one, self.sharpness, self.diversity) for one in logits_VBC.chunk(len(views))
        ]
        loss = torch.stack(losses).mean()
        (slope_D,) = torch.autograd.grad(loss, model_D)
        along_M = linalg.dots(rows, slope_D)
        return loss.detach(), weights_M * (along_M - weights_M @ along_M)

    def group(self, weights_M: Tensor) -> Tensor:
        """The cluster number (M,) of every weight, counted from 0."""
        if self.clusters == "finch":
            return clustering.finch(weights_M.unsqueeze(1), clusters=2)
        if self.clusters == "finch_first":
            return clustering.finch(weights_M.unsqueeze(1))
        if self.clusters == "k_means":
            return clustering.two_means(weights_M)
        return clustering.dbscan(weights_M.unsqueeze(1), self.radius / len(weights_M), 2)


def cluster_weights(weights_M: Tensor, labels_M: Tensor) -> Tensor:
    """Replaces the learned weights (M,) outside the worst cluster by the mean of these weights.

    The worst cluster is the cluster with the lowest mean weight; its rows keep their learned
    weights. If there is only one cluster, the weights are uniform.

    >>> cluster_weights(torch.tensor([0.5, 0.3, 0.15, 0.05]), torch.tensor([0, 0, 1, 1]))
    tensor([0.4000, 0.4000, 0.1500, 0.0500])
    """
    clusters = int(labels_M.max()) + 1
    if clusters == 1:
        return torch.full_like(weights_M, 1 / len(weights_M))
    means = [float(weights_M[labels_M == label].mean()) for label in range(clusters)]
    good_M = labels_M != means.index(min(means))
    share = weights_M[good_M].mean()
    return torch.where(good_M, share, weights_M)
