"""The learning client: it processes tickets, and stores its uploads and state on disk.

Before a client sends an upload, it writes the upload, its personal state after training, and the
ticket's ETag to disk. A client that crashes and restarts therefore sends the same bytes, and never
trains its personal model twice for one ticket.

Legend: D parameters.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from rampart_fl.shared.agent.activity_log import ActivityLog
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network.votes import vote
from rampart_fl.shared.learning.training.cohort import Cohort
from rampart_fl.shared.learning.training.evaluation import evaluate
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import LocalResult, train_round
from rampart_fl.shared.learning.training.privacy import STEPS
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import ClientReport, Ticket
from rampart_fl.shared.protocol.reports import reportable, sendable, with_gap
from rampart_fl.shared.protocol.traffic import claims
from rampart_fl.shared.runtime import durable
from rampart_fl.shared.runtime.compute import compute_on

INITIAL = "initial.safetensors"
"""The file with a run's first model, if this model is not initialized from the seed."""
PERSONAL = "personal.safetensors"
"""The file with a client's personal state at the end of a run."""


def client_experiment(part: Mapping[str, Any]) -> Experiment:
    """The part of the experiment that a client knows, parsed from the aggregator's answer."""
    return Experiment.from_tables(
        {key: part[key] for key in part if key not in {"digest", "sample_cap", "initial"}}
    )


class RunFiles:
    """A client's files for a run: the last upload and personal state for each kind of ticket.

    Each kind of ticket has one file, which is replaced atomically. The file holds a line of JSON
    (the ticket's ETag and the upload's length), the upload, and the personal state after the
    upload.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def upload(self, ticket: Ticket) -> bytes | None:
        """The upload stored for exactly this ticket, if any."""
        kept = self._read(ticket.kind)
        if kept is None or kept[0]["ticket"] != ticket.etag:
            return None
        return kept[1][: kept[0]["length"]]

    def personal(self, kind: str = "train") -> dict[str, Tensor] | None:
        """The personal state after the last ticket of this kind; None before the first ticket."""
        kept = self._read(kind)
        return None if kept is None else load_tensors(kept[1][kept[0]["length"] :])

    def keep(self, ticket: Ticket, upload: bytes, personal: Mapping[str, Tensor]) -> None:
        """Stores an upload together with the personal state after the training."""
        head = json.dumps({"ticket": ticket.etag, "length": len(upload)}).encode() + b"\n"
        state = save_tensors({name: tensor.contiguous() for name, tensor in personal.items()})
        durable.replace(self._folder / f"{ticket.kind}.kept", (head, upload, state))

    def finish(self) -> None:
        """After the run, keeps only the personal state, in the file personal.safetensors."""
        personal = self.personal()
        if personal:
            state = save_tensors({name: tensor.contiguous() for name, tensor in personal.items()})
            durable.replace(self._folder / PERSONAL, (state,))
        for path in (*self._folder.glob("*.kept"), self._folder / INITIAL):
            path.unlink(missing_ok=True)

    def _read(self, kind: str) -> tuple[dict[str, Any], bytes] | None:
        path = self._folder / f"{kind}.kept"
        if not path.exists():
            return None
        head, _, rest = path.read_bytes().partition(b"\n")
        return json.loads(head), rest


class LearningClient:
    """An honest client, which trains its ticket's model and uploads the resulting update.

    Args:
        experiment: the part of the experiment that clients know.
        client: the client's id.
        data: the client's samples.
        folder: where the client stores its state.
        sample_cap: the highest number of samples that the client may claim.
        thread: the executor that runs the client's computations.
        dtype: number format of uploads (F32, F16 or BF16).
        activity: the client's own log, which records each training; None if nothing is recorded.
        device: where the client trains and evaluates models; the client stores models on the CPU.
    """

    def __init__(
        self,
        experiment: Experiment,
        client: str,
        data: ClientData,
        folder: Path,
        sample_cap: int,
        thread: Executor,
        dtype: str = "F32",
        activity: ActivityLog | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.experiment = experiment
        self.client = client
        self.data = data
        self.keeper = RunFiles(folder)
        self.learner = Learner.of(experiment)
        self._samples = min(sample_cap, len(data.y_train))
        self.compute = compute_on(thread)
        """Runs a function on the client's thread."""
        self._dtype = dtype
        self._activity = activity
        self._device = device
        self._others: dict[str, bytes] = {}

    async def work(self, ticket: Ticket, model: bytes) -> bytes:
        """Returns this ticket's stored upload; if none is stored, trains and makes an upload."""
        kept = self.keeper.upload(ticket)
        if kept is not None:
            return kept
        result = await self.compute(self._train, ticket, model)
        update_D, metrics = await self.finish(ticket, result)
        return await self.compute(self._keep, ticket, update_D, metrics, result)

    async def finish(self, ticket: Ticket, result: LocalResult) -> tuple[Tensor, dict[str, float]]:
        """The update and metrics to upload after training; attackers override this method."""
        return result.update_D, with_gap(result.metrics)

    def samples(self, round_: int) -> ClientData:
        """The samples on which the client trains in a round."""
        del round_
        return self.data

    async def evaluate(self, ticket: Ticket, model: bytes) -> dict[str, float]:
        """Evaluates the final model and the client's own model."""
        return reportable(await self.compute(self._evaluate, model))

    async def receive(self, ticket: Ticket, others: Mapping[str, bytes]) -> None:
        """Stores a ticket's additional models until `work` or `evaluate` uses them."""
        self._others = dict(others)

    async def idle(self, ticket: Ticket) -> None:
        """Does nothing."""

    def _model(self, model: bytes) -> Tensor:
        return torch.from_numpy(wire.read_model(model, self.learner.spec))

    def _other_models(self, prefix: str) -> list[Tensor]:
        """Removes and returns the stored models whose names have this prefix, sorted by name."""
        names = sorted(name for name in self._others if name.startswith(prefix))
        return [self._model(self._others.pop(name)) for name in names]

    def _state(self) -> dict[str, Tensor]:
        kept, probed = self.keeper.personal(), self.keeper.personal("probe")
        first = self.learner.first_state(self.learner.initial_model()) if kept is None else kept
        if probed is not None and STEPS in probed:
            # A probe spends as much privacy budget as a round, so its privacy steps count too.
            first[STEPS] = torch.maximum(first[STEPS], probed[STEPS])
        return first

    def _on_device(self, models: Sequence[Tensor]) -> list[Tensor]:
        return [model_D.to(self._device) for model_D in models]

    def _state_on_device(self) -> dict[str, Tensor]:
        return {name: tensor.to(self._device) for name, tensor in self._state().items()}

    def _train(self, ticket: Ticket, model: bytes) -> LocalResult:
        result = train_round(
            self.learner,
            self.samples(ticket.round),
            self._model(model).to(self._device),
            self._state_on_device(),
            seed=self.experiment.seed,
            client=self.client,
            round_=ticket.round,
            offered=self._on_device(self._other_models("peer_")),
            # Draw the privacy noise from a secret seed. The aggregator knows the experiment's seed,
            # so it could reproduce noise that is drawn from that seed.
            secret=secrets.randbits(62),
        )
        personal = {name: tensor.cpu() for name, tensor in result.personal.items()}
        return replace(result, update_D=result.update_D.cpu(), personal=personal)

    def _keep(
        self, ticket: Ticket, update_D: Tensor, metrics: dict[str, float], result: LocalResult
    ) -> bytes:
        vector_D: NDArray[np.float32] = update_D.float().numpy()
        diverged = False
        # Replace a diverged update with zeros. If only an attack made the update diverge, send it
        # unchanged.
        if update_D is result.update_D or not bool(result.update_D.isfinite().all()):
            vector_D, diverged = sendable(vector_D, self._dtype)
        report = ClientReport(samples=self._samples, metrics=metrics, diverged=diverged)
        upload = wire.encode(self.learner.spec, vector_D, claims(report), self._dtype)
        if self._activity is not None:
            epochs, samples = self.experiment.training.epochs, len(self.data.y_train)
            spent = result.metrics.get("epsilon")
            self._activity.record_training(ticket.run, ticket.round, epochs, samples, spent)
        # A probe serves only to find similar clients, so the personal state after a probe goes to a
        # separate file. From this file, later rounds use only the number of privacy steps.
        self.keeper.keep(ticket, upload, result.personal)
        return upload

    def _evaluate(self, model: bytes) -> dict[str, float]:
        received_D = self._model(model).to(self._device)
        metrics = evaluate(self.learner, self.data, received_D, self._state_on_device())
        voters = self._on_device(self._other_models("vote_"))
        if voters:
            counts = vote(self.learner, Cohort.of([self.data], device=self._device), voters)
            metrics |= {name: column.item() for name, column in counts.items()}
        return metrics
