"""FedREDefense: treats an update as an attack if no training could have caused the update.

Legend: M rows, K clients whose reconstructions run at once, B synthetic samples, D parameters.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust.base import Context, Detector, Rows, State, Verdict
from rampart_fl.shared.robust.context import Need
from rampart_fl.shared.robust.detectors import detectors, verdict_for
from rampart_fl.shared.robust.reconstruction import WORST, SearchSettings, Synthetic, search
from rampart_fl.shared.runtime.device import to_device

PARTS = ("samples", "labels", "rates")
NOTHING: Mapping[str, Mapping[str, Tensor]] = {part: {} for part in PARTS}
"""The state before the first search. A search that gets this mapping begins from noise."""


@detectors.register("fedredefense")
class FedREDefense(Detector):
    """Evicts clients if the reconstruction error of their update u is above the threshold.

    A reconstruction error that is not finite counts as above the threshold. For each client, the
    detector searches for synthetic samples, soft labels and a step size. With the samples, labels
    and step size that the search finds, `steps` steps of gradient descent should lead from the
    global model w to w + u. If gradient descent leads to another point θ, the reconstruction error
    is |θ - w - u|² / |u|². The search can reconstruct an update that local training produced, but
    not random noise of the same dimension. The error is about 1 if the update is noise, and exactly
    1 if the update is zero. The detector assumes that clients train the whole global model w.
    Rampart therefore refuses experiments in which clients start from other models or upload only a
    part of the model. If an honest update has a large norm, `steps` steps of gradient descent may
    be too short to reach this norm. Larger steps can reach it. If a search fails, the detector
    therefore repeats the search with larger step sizes (`larger`). The detector keeps each client's
    synthetic samples, and the client's next search starts from these samples.

    The search stops as soon as the error is below the threshold. For an accepted client, a longer
    search could therefore reach a smaller error than the verdict states.
    """

    paper = "Xie et al., FedREDefense, 2024; MSDFL, section VII-A"
    breakdown = "f < n in one round; over rounds, attackers that move models can reach others"
    complexity = (
        "O(n d) an iteration: `steps` passes and backward passes of `per_class` · C samples"
    )
    passes = "in memory only: searches samples that explain each update, with the whole model"
    streams = False
    retraces: ClassVar[bool] = True
    threshold: float = Field(default=0.6, gt=0)
    """Largest error that is accepted."""
    iterations: int = Field(default=500, ge=1)
    """Largest number of iterations of a search that begins from noise."""
    warm_iterations: int = Field(default=1500, ge=1)
    """Largest number of iterations of a search that starts from an earlier round's samples."""
    steps: int = Field(default=5, ge=1)
    """Number of gradient descent steps on the samples; these steps should reproduce the update."""
    per_class: int = Field(default=1, ge=1)
    """Number of synthetic samples for each class."""
    sample_rate: float = Field(default=0.1, gt=0)
    """Learning rate of the search for the synthetic samples. The search starts from noise."""
    label_rate: float = Field(default=0.05, gt=0)
    """Learning rate of the search for the labels. The search starts from uniform distributions."""
    rate_rate: float = Field(default=5e-5, ge=0)
    """Learning rate of the search for the client's step size. The search starts from `rate`."""
    rate: float = Field(default=0.05, gt=0)
    """Initial value of the client's step size in the client's first search."""
    momentum: float = Field(default=0.5, ge=0, lt=1)
    """Momentum of the search for samples, labels and the client's step size."""
    larger: float = Field(default=10.0, ge=1)
    """A failed search is repeated from the beginning, with learning rates and an initial step size
    that are larger by this factor. The detector uses the result of the search with the smaller
    error. With factor 1, no search is repeated, as in the paper."""
    at_once: int = Field(default=16, ge=1)
    """Number of clients whose searches run as one batch, with all their models and gradients in
    memory."""

    def needs(self) -> frozenset[Need]:
        return frozenset({"predict"})

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        held = {part: state.by_id(part) for part in PARTS}
        errors: dict[str, float] = {}
        for start in range(0, len(rows), self.at_once):
            some = range(start, min(start + self.at_once, len(rows)))
            some_errors, kept = self._reconstruct(rows, some, held, context)
            errors |= some_errors
            for part, tensors in kept.items():
                held[part] |= tensors
        verdicts = [self._judge(client, errors[client]) for client in rows.ids]
        verdicts += [self._judge(client, WORST) for client in rows.dropped]
        for verdict in verdicts:
            if verdict.decision != "accepted":
                for part in PARTS:
                    held[part].pop(verdict.client, None)
        return tuple(verdicts), _state(held)

    def _judge(self, client: str, error: float) -> Verdict:
        over = error > self.threshold
        return verdict_for(
            self,
            client,
            error,
            self.threshold,
            "evicted" if over else None,
            "reconstruction error {0} " + ("exceeds {1}" if over else "is within {1}"),
        )

    def _reconstruct(
        self,
        rows: Rows,
        some: Sequence[int],
        held: dict[str, dict[str, Tensor]],
        context: Context,
    ) -> tuple[dict[str, float], dict[str, dict[str, Tensor]]]:
        """The error of each row in `some`, keyed by client, and the tensors that the searches
        found, keyed by name and then by client."""
        if context.predict is None or context.reference_D is None:
            raise ConfigurationError(f"{self.name} needs the network and the reference model")
        errors = {rows.ids[i]: 1.0 for i in some}  # Rows of zeros get no search.
        update_MD = torch.stack([rows.row(i) for i in some])
        moved = update_MD.ne(0).any(1).nonzero().flatten().tolist()
        if not moved:
            return errors, {}
        updates = {rows.ids[some[i]]: update_MD[i] for i in moved}
        searched, kept = self._search(updates, held, context, 1.0)
        failed = {c: u_D for c, u_D in updates.items() if searched[c] > self.threshold}
        if failed and self.larger > 1:
            again, kept_again = self._search(failed, NOTHING, context, self.larger)
            for client in failed:
                if again[client] < searched[client]:
                    searched[client] = again[client]
                    for part in PARTS:
                        kept[part][client] = kept_again[part][client]
        return errors | searched, kept

    def _search(
        self,
        updates: Mapping[str, Tensor],
        held: Mapping[str, Mapping[str, Tensor]],
        context: Context,
        larger: float,
    ) -> tuple[dict[str, float], dict[str, dict[str, Tensor]]]:
        """Searches once, with step sizes multiplied by `larger`; returns what `_reconstruct`
        returns."""
        assert context.predict is not None and context.reference_D is not None
        clients = list(updates)
        update_KD = torch.stack(list(updates.values()))
        reference_D = context.reference_D.to(update_KD)
        limits = [self.warm_iterations if c in held["rates"] else self.iterations for c in clients]
        rates = (larger * self.sample_rate, larger * self.label_rate, larger * self.rate_rate)
        found_K, synthetic = search(
            context.predict,
            reference_D,
            update_KD,
            self._begin(clients, held, context, reference_D, larger * self.rate),
            to_device(limits, update_KD.device),
            SearchSettings(self.steps, rates, self.momentum, self.threshold),
        )
        kept = {
            part: dict(zip(clients, tensor_K, strict=True))
            for part, tensor_K in synthetic.tensors().items()
        }
        return dict(zip(clients, found_K.tolist(), strict=True)), kept

    def _begin(
        self,
        clients: Sequence[str],
        held: Mapping[str, Mapping[str, Tensor]],
        context: Context,
        reference_D: Tensor,
        rate: float,
    ) -> Synthetic:
        """The start of each client's search: the client's samples of an earlier round, or noise."""
        assert context.predict is not None
        blank = torch.zeros(1, 1, *context.shape).to(reference_D)
        with torch.no_grad():
            classes = context.predict(reference_D.unsqueeze(0), blank).shape[-1]
        samples, labels, rates = [], [], []
        for client in clients:
            draws = context.generator(f"{self.name} {client}")
            noise_B = torch.randn(self.per_class * classes, *context.shape, generator=draws)
            samples.append(held["samples"].get(client, noise_B).to(reference_D))
            uniform_BC = torch.zeros(len(noise_B), classes)
            labels.append(held["labels"].get(client, uniform_BC).to(reference_D))
            rates.append(held["rates"].get(client, torch.tensor(rate)).to(reference_D))
        return Synthetic(torch.stack(samples), torch.stack(labels), torch.stack(rates))


def _state(held: dict[str, dict[str, Tensor]]) -> State:
    clients = tuple(sorted(held["rates"]))
    if not clients:
        return State()
    return State(
        {part: torch.stack([held[part][client] for client in clients]) for part in PARTS},
        dict.fromkeys(PARTS, clients),
    )
