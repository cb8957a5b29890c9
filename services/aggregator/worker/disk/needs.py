"""Computes how much a round writes to the disk that holds the blobs or their cache."""

import shutil
from dataclasses import dataclass

from rampart_fl.services.aggregator.state.blobs import Blobs, converted_disk_errors
from rampart_fl.services.aggregator.worker.byte_size import readable
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.robust.histories import challenged_controls, challenges_clients


def models_of(plan: Plan, clients: int, counted: int, known: int) -> int:
    """The largest number of models that a round usually stores.

    A round that challenges unusually many absent clients can store more models.

    Args:
        plan: the stages of the round.
        clients: number of clients in the round.
        counted: number of clients whose updates the round aggregates.
        known: number of all clients of the run. A round also challenges clients that are not in the
            round.
    """
    models = 1 + plan.customizer.models_of(counted)
    if challenges_clients(plan):
        models += min(known, 2 * clients + challenged_controls(plan, counted, known))
    return models


@dataclass(frozen=True)
class DiskNeeds:
    """The vectors that the worker writes to the disk for a round; each has the size of a model.

    Args:
        vector_bytes: size of a vector in bytes.
        clients: number of clients, each of which sends an update.
        models: number of models that the worker stores after the round.
        kept: number of rows in the stages' state, which the worker stores after the round.
        filed: number of rows in temporary files. These rows are the pool's rows and the new rows of
            the stages' state.
    """

    vector_bytes: int
    clients: int
    models: int
    kept: int
    filed: int

    def shortage(self, blobs: Blobs) -> str:
        """Why the round has to wait for disk space; empty if the space suffices.

        Raises:
            Unavailable: the disk does not answer.
        """
        with converted_disk_errors():
            free = shutil.disk_usage(blobs.folder).free
            updates = blobs.growth(self.clients, self.vector_bytes)
        # Count equal models separately. Each customized model is written to its own unfinished
        # file, and no file becomes a blob before all files are written.
        others = self.vector_bytes * (self.models + self.kept + self.filed)
        needed = updates + others
        if needed <= free:
            return ""
        cached = ""
        if updates < self.clients * self.vector_bytes:
            cached = f"up to {readable(updates)} more in the cache for "
        return (
            f"disk: a round of {self.clients} clients needs {readable(needed)} in {blobs.folder} "
            f"({cached}{self.clients} updates"
            + f", {self.models} models"
            + (f", {self.kept} rows of the stages' state" if self.kept else "")
            + (f", {self.filed} rows in temporary files" if self.filed else "")
            + f"), but only {readable(free)} of disk space is free"
        )
