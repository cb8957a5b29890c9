"""Replays a buffered federation from only its uploads and the order of its events.

This is a second, simple implementation of the buffered policy: the K-th arrival of a round
refreshes the global model, and a client that pulls gets a model made of the rows that the last
refresh accepted. The vectors go through the aggregator's round engine, so that digests can be
compared with the published ones.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.redis_records import Event
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stores import RunStores
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine, RoundResult
from rampart_fl.services.console.testing import TestClients
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.protocol.messages import Receipt
from tests.integration.in_process_federation import Scripted

AskStores = Callable[[Callable[[RunStores], Any]], Any]
"""Runs an action on a run's state."""


@dataclass
class Replay:
    """The result that a federation must have reached.

    Args:
        experiment: buffered, with a buffer that counts arrivals.
        folder: for blobs.
        uploads: every body that was sent.
    """

    experiment: Experiment
    folder: Path
    uploads: Iterable[bytes]
    rounds: list[RoundResult] = field(default_factory=list)
    started_from: dict[str, list[str]] = field(default_factory=dict)
    """Digests of the models that each client was given to train from, in order."""
    counted: list[str] = field(default_factory=list)
    """Digests of the updates that counted, in order."""
    _fresh: dict[str, Receipt] = field(default_factory=dict)
    _waiting: list[str] = field(default_factory=list)
    _evicted: set[str] = field(default_factory=set)
    _holding: set[str] = field(default_factory=set)
    """Clients with an unanswered ticket; a client that asks again keeps its ticket."""

    def run(self, events: Sequence[Event]) -> "Replay":
        """Follows all events of a finished run."""
        blobs = Blobs(self.folder)
        for upload in self.uploads:
            blobs.put(upload)
        spec, first = RoundEngine.first_model(self.experiment, blobs)
        self.round_engine = RoundEngine(self.experiment, spec, blobs, torch.device("cpu"))
        self.round_engine.restore(first)
        opened = next(i for i, event in enumerate(events) if event.type == "opened")
        self._joined = [event.client for event in events[:opened] if event.type == "accepted"]
        self._founders = len(self._joined)
        self._open(self._joined)
        for event in events[opened:]:
            if len(self.rounds) == self.experiment.rounds:
                break
            if event.type == "joined":
                self._joined.append(event.client)
            elif event.type == "update":
                self._update(event.receipt)
            elif event.type == "probe":
                probe = None if event.receipt.diverged else event.receipt.digest
                number = len(self.rounds)
                digest = self.round_engine.customize_newcomer(event.client, probe, number)
                self._give(event.client, digest)
            elif event.type == "pull" and event.client in self._fresh:
                self._waiting.append(event.client)
            elif event.type == "pull" and event.client not in self._holding:
                self._ticket(event.client)
        return self

    @property
    def snapshot(self) -> Snapshot:
        assert self.round_engine.snapshot is not None
        return self.round_engine.snapshot

    def _open(self, clients: Iterable[str]) -> None:
        self.round_engine.open_round(())
        for client in dict.fromkeys(clients):
            if client not in self._evicted:
                self._ticket(client)

    def _ticket(self, client: str) -> None:
        """Gives a model to train from; a client without one gets it by the probe that follows."""
        if client in self.snapshot.customized:
            self._give(client, self.snapshot.customized[client])
        elif not (self.round_engine.probes and self.snapshot.customized):
            self._give(client, self.snapshot.global_model)

    def _give(self, client: str, digest: str) -> None:
        self.started_from.setdefault(client, []).append(digest)
        self._holding.add(client)

    def _update(self, receipt: Receipt) -> None:
        self._fresh[receipt.client] = receipt
        self._holding.discard(receipt.client)
        if len(self._fresh.keys() - self._evicted) < int(self.experiment.buffer):
            return
        receipts = {old.client: old for old in self.snapshot.pool} | self._fresh
        receipts = {c: receipts[c] for c in sorted(receipts) if c not in self._evicted}
        standing = Standing(len(self._joined), self._founders, frozenset(self._evicted))
        number = len(self.rounds)
        decided = self.round_engine.close_round(number, receipts, "0-0", (), standing)
        self.rounds.append(decided)
        self.counted += [one.digest for one in self._fresh.values()]
        self._evicted |= decided.about("evicted").keys()
        waiting, self._waiting, self._fresh = self._waiting, [], {}
        self._open(waiting)


def check_replay(
    test_clients: TestClients,
    ask: AskStores,
    experiment: Experiment,
    clients: dict[str, Scripted],
    folder: Path,
) -> Replay:
    """Checks that a replay of the events and uploads gives the same digests."""
    events: list[Event] = ask(lambda run: run.events.read("0-0", 0.1, count=100_000))
    counts = Counter(event.receipt.digest for event in events if event.type == "update")
    assert set(counts.values()) == {1}
    uploads = [upload for client in clients.values() for upload in client.uploads]
    again = Replay(experiment, folder / "replay", uploads).run(events)
    assert list(counts)[: len(again.counted)] == again.counted
    records = test_clients.run.rounds()
    assert len(records) == len(again.rounds)
    for record, decided in zip(records, again.rounds, strict=True):
        assert record.models["global"] == decided.snapshot.global_model
        assert record.models["reference"] == decided.snapshot.reference
        assert record.customized == decided.snapshot.customized
        assert record.verdicts == decided.verdicts
        assert record.weights == decided.record.weights
        assert record.mixing == decided.record.mixing
    for name, client in clients.items():
        trained = [t.models["model"] for t in client.tickets if t.kind == "train"]
        assert trained == again.started_from[name][: len(trained)]
        # All uploads but the last were acknowledged: the client got its next ticket.
        worked = [t for t in client.tickets if t.kind in {"train", "probe"}]
        for ticket, upload in list(zip(worked, client.uploads, strict=False))[:-1]:
            assert ticket.kind == "probe" or sha256(upload).hexdigest() in counts
        receipts = [event.receipt for event in events if event.type == "update"]
        started = [receipt.started for receipt in receipts if receipt.client == name]
        assert started == trained[: len(started)]
    return again
