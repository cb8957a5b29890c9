"""The server's resources besides the uploads: network, public samples, own update, test samples.

Legend: K models, B samples in a batch, D parameters.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rampart_fl.shared.experiment.schema import Experiment, Training
from rampart_fl.shared.experiment.server import ServerSamples
from rampart_fl.shared.learning.data.augmentation import strongly_augmented, weakly_augmented
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.data.server_data import ServerData, server_data
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.evaluation import evaluate_many
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train
from rampart_fl.shared.robust.context import Context, PublicData
from rampart_fl.shared.robust.engine import Plan

AUGMENTATIONS = {"none": None, "weak": weakly_augmented, "strong": strongly_augmented}


@dataclass(frozen=True, eq=False)
class ServerResources:
    """The resources that an experiment's stages need; `attach_to` adds them to a context.

    Args:
        seed: the experiment's seed.
        learner: network and training; None if no stage needs them.
        public: samples on which stages evaluate models.
        root: the server's own training set, in the form of one client's data.
        test: the server's test set, in the form of one client's data.
        shape: shape of a sample.
    """

    seed: int
    learner: Learner | None = None
    public: PublicData | None = None
    root: Cohort | None = None
    test: Cohort | None = None
    shape: tuple[int, ...] = ()

    @staticmethod
    def of(
        experiment: Experiment, plan: Plan, device: torch.device | str = "cpu"
    ) -> "ServerResources":
        """Loads only what the plan's stages and the test of the global model need.

        Raises:
            ConfigurationError: the samples cannot be loaded, or do not fit the clients' model.
        """
        needs = plan.needs()
        server, data, seed = experiment.server, experiment.data, experiment.seed
        learner, public, root, test = None, None, None, None
        if needs or server.test is not None:
            # The server trains without a personal model, objective terms or privacy noise.
            plain = {"personalizer": "none", "training": _plain(experiment.training)}
            learner = Learner.of(Experiment.from_tables({**experiment.tables(), **plain}))
        taken: list[tuple[ServerSamples, Tensor]] = []
        if server.public is not None and needs.keys() & {"public", "labels"}:
            table, labels = server.public, "labels" in needs
            held = server_data(table.dataset, table.size, data, seed, "public", labels=labels)
            taken.append((table, held.positions))
            y_P = held.y.to(device) if held.labelled else None
            public = PublicData(held.x.to(device), y_P, AUGMENTATIONS[table.augmentation])
        if server.root is not None and "server_update" in needs:
            own = server.root
            held = server_data(own.dataset, own.size, data, seed, "root", labels=True)
            taken.append((own, held.positions))
            root = Cohort.of([_as_client(held, train=True)], device=device)
        if server.test is not None:
            own = server.test
            # Tables that differ only in defaults name the same data set.
            source = datasets.parse(own.dataset)
            others = [at for table, at in taken if datasets.parse(table.dataset) == source]
            without = torch.cat(others) if others else None
            held = server_data(own.dataset, own.size, data, seed, "test", True, without)
            test = Cohort.of([_as_client(held, train=False)], device=device)
        shape = datasets.parse(data.dataset).shape
        return ServerResources(seed, learner, public, root, test, shape)

    def attach_to(self, context: Context) -> Context:
        """The context with everything that stages need, including a newly trained server update."""
        changes: dict[str, Any] = {"public": self.public}
        if self.learner is not None:
            changes |= {"predict": self.learner.network.logits, "shape": self.shape}
        if context.reference_D is not None:
            changes["server_update_D"] = self.update(context.reference_D, context.round)
        return replace(context, **changes)

    def update(self, reference_D: Tensor, round_: int) -> Tensor | None:
        """The server's own update (D,), trained from the reference model on the server's root set.

        The server uses the clients' settings for batches and steps (see `_plain`). The result is
        None if no stage needs the server's own update.
        """
        if self.learner is None or self.root is None:
            return None
        batches = Batches.draw(
            self.root.train_K, ["server"], self.learner.training, self.seed, round_
        )
        started_1D = reference_D.unsqueeze(0)
        return train(self.learner, self.root, batches, started_1D, {}, measure=False).update_KD[0]

    def tested(self, model_D: Tensor) -> dict[str, float]:
        """Metrics of a model (D,) on the server's test set; empty if the server has no test set."""
        if self.learner is None or self.test is None:
            return {}
        columns = evaluate_many(self.learner, self.test, model_D.unsqueeze(0), {})
        return {name: column.item() for name, column in columns.items()}


def _as_client(held: ServerData, train: bool) -> ClientData:
    """The server's samples as `ClientData`, either for training only or for testing only."""
    own, none = (held.x, held.y), (held.x[:0], held.y[:0])
    first, second = (own, none) if train else (none, own)
    return ClientData(*first, *second, int(held.y.max()) + 1)


def _plain(training: Training) -> dict[str, Any]:
    """The clients' training settings, restricted to the settings that define batches and steps."""
    kept = {
        "epochs",
        "batch_size",
        "learning_rate",
        "momentum",
        "weight_decay",
        "schedule",
    }
    return training.model_dump(include=kept)
