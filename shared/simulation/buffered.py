"""The buffered policy in simulation: after every `buffer` uploads, the global model is refreshed.

Every client trains from the model that it received, and then asks for the next model. The duration
of each training is drawn from an exponential distribution with mean 1. The experiment's seed, the
client and the round determine each draw. Repeated runs of an experiment therefore have the same
order of arrivals. A client answers a probe without delay.

Legend: K clients, D parameters.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from rampart_fl.shared.experiment.selection import quota
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.seeding import generator
from rampart_fl.shared.simulation.clients import SimulatedClients, Uploads
from rampart_fl.shared.simulation.server import SimulatedServer


@dataclass(frozen=True, eq=False)
class Work:
    """The training that the server has requested from a client.

    Args:
        round: the round that was open when the client got the work; the random draws depend on this
            round.
        due: the simulated time at which the work will be done.
        start_D: the model that the client trains from.
        origin_D: the same model without its challenge; None if the client is not challenged.
    """

    round: int
    due: float
    start_D: Tensor
    origin_D: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Arrival:
    """The upload of a client.

    Args:
        round: the round that was open when the client got the work for this upload.
        start_D, update_D: the model that the client started from, and the upload.
        samples, metrics: the sample count that the client claims, and the metrics that it reports.
        origin_D: the model that the client started from, without its challenge; None if the client
            was not challenged.
    """

    round: int
    start_D: Tensor
    update_D: Tensor
    samples: int
    metrics: Mapping[str, float]
    origin_D: Tensor | None = None


@dataclass(eq=False)
class Buffered:
    """The rounds of a federation without a synchronization barrier.

    Args:
        clients, server: the two sides of the federation; every round updates their state.
        work: the work of each client that is still training.
        latest: the newest uploads of the clients whose rows are in the pool.
        now: the simulated time at which the previous round was closed.
    """

    clients: SimulatedClients
    server: SimulatedServer
    work: dict[str, Work] = field(default_factory=dict)
    latest: dict[str, Arrival] = field(default_factory=dict)
    now: float = 0.0

    def memory(self) -> dict[str, Any]:
        """The state that the next round depends on, for a checkpoint."""
        return {"work": self.work, "latest": self.latest, "now": self.now}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restores the state that `memory` returned."""
        self.work, self.latest = dict(memory["work"]), dict(memory["latest"])
        self.now = memory["now"]

    def run(
        self, round_: int, candidates: Iterable[str], lap: Callable[[str], None]
    ) -> RoundRecord:
        """Runs a round until the arrival that closes it, and returns the round's record."""
        present = sorted(candidates)
        self.work = {name: work for name, work in self.work.items() if name in present}
        probed = self._hand_out([name for name in present if name not in self.work], round_)
        lap("models")
        close = quota(self.clients.experiment.buffer, len(present))
        soonest = sorted(self.work, key=lambda name: (self.work[name].due, name))[:close]
        self.now = max(self.work[name].due for name in soonest)
        fresh = self._train(soonest, present)
        self.work = {name: work for name, work in self.work.items() if name not in fresh}
        lap("train")

        stale = {name: one for name, one in self.latest.items() if name in present}
        arrivals = dict(sorted({**stale, **fresh}.items()))
        uploads, sent_KD = _merge(arrivals)
        down, up = self.server.traffic(_merge(fresh)[0], probed)
        staleness = {name: round_ - one.round for name, one in arrivals.items()}
        seen = stale.keys() - fresh.keys()
        origins = {n: one.origin_D for n, one in arrivals.items() if one.origin_D is not None}
        record = self.server.close(round_, sent_KD, uploads, origins, lap, staleness, seen)
        if record.status == "published":
            kept = set() if self.server.neighbours is None else {*self.server.neighbours.rows.ids}
            self.latest = {name: one for name, one in arrivals.items() if name in kept}
        extra = {"staleness": staleness, "probed": probed, "bytes_down": down, "bytes_up": up}
        return record.model_copy(update={"policy": "buffered", **extra})

    def _hand_out(self, names: Sequence[str], round_: int) -> list[str]:
        """Gives clients their next task; returns the clients that had to answer a probe first."""
        probed = self.server.clients_to_probe(names)
        if not names:
            return probed
        probes = self.clients.probe(probed, self.server.probed_from, round_)
        models_KD, origins = self.server.models(round_, names, probes), self.server.origins(names)
        for name, start_D in zip(names, models_KD, strict=True):
            draws = generator(self.clients.experiment.seed, "arrival", name, round_)
            span = torch.empty(1, dtype=torch.float64).exponential_(generator=draws).item()
            origin_D = origins[name].clone() if name in origins else None
            self.work[name] = Work(round_, self.now + span, start_D.clone(), origin_D)
        return probed

    def _train(self, names: Iterable[str], present: Sequence[str]) -> dict[str, Arrival]:
        """Trains these clients; clients that got their work in the same round train together.

        Every client in `present` takes part in the round, even if the client uploads nothing in
        this round.

        Returns:
            The clients' arrivals, keyed and sorted by client.
        """

        def begun(name: str) -> int:
            return self.work[name].round

        arrivals: dict[str, Arrival] = {}
        for round_, group in groupby(sorted(sorted(names), key=begun), begun):
            together = list(group)
            works = [self.work[name] for name in together]
            sent_KD = torch.stack([work.start_D for work in works])
            global_D = self.server.global_D
            done = self.clients.train(together, sent_KD, global_D, round_, drawn=present)
            for k, name in enumerate(together):
                arrivals[name] = Arrival(
                    round_,
                    sent_KD[k],
                    done.update_KD[k],
                    done.samples[k],
                    done.metrics[name],
                    works[k].origin_D,
                )
        return dict(sorted(arrivals.items()))


def _merge(arrivals: Mapping[str, Arrival]) -> tuple[Uploads, Tensor]:
    """Stacks the uploads, and the models (K, D) from which the clients started to train."""
    all_ = list(arrivals.values())
    uploads = Uploads(
        tuple(arrivals),
        torch.stack([one.update_D for one in all_]),
        tuple(one.samples for one in all_),
        {name: dict(one.metrics) for name, one in arrivals.items()},
    )
    return uploads, torch.stack([one.start_D for one in all_])
