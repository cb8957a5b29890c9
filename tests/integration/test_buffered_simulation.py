"""The buffered policy: the simulator agrees with the aggregator's round engine on equal clocks."""

from pathlib import Path

import pytest
import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.learning.data.client_data import client_data
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train_round
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import ClientReport, Receipt
from rampart_fl.shared.protocol.traffic import claims, model_bytes, upload_bytes
from rampart_fl.shared.seeding import generator
from rampart_fl.shared.simulation import simulate

EXPERIMENT = Experiment.from_tables(
    {
        "name": "small",
        "seed": 3,
        "rounds": 6,
        "policy": "buffered",
        "buffer": 3,
        "data": {
            "dataset": "digits",
            "partition": {"name": "classes_per_client", "classes": 2},
            "clients": 7,
        },
        "model": {"name": "mlp", "hidden": [8]},
        "training": {"epochs": 1, "batch_size": 20, "learning_rate": 0.1},
        "personalizer": {"name": "fedcap", "lambda": 0.1},
        "server": {
            "detectors": ["robust_distance"],
            "customizer": {"name": "fedcap", "alpha": 10, "phi": 0.1},
            "rule": ["nnm", "median"],
            "f": 1,
        },
    }
)


class Aggregator:
    """The worker's round engine, fed by clients on the simulator's clocks."""

    def __init__(self, folder: Path) -> None:
        self.blobs = Blobs(folder)
        self.spec, first = RoundEngine.first_model(EXPERIMENT, self.blobs)
        self.worker = RoundEngine(EXPERIMENT, self.spec, self.blobs, torch.device("cpu"))
        self.worker.restore(first)
        self.learner = Learner.of(EXPERIMENT)
        first_D = self.learner.initial_model()
        self.states = {c: self.learner.first_state(first_D) for c in EXPERIMENT.client_names}
        self.now = 0.0
        self.work: dict[str, tuple[int, float, str]] = {}

    def model(self, digest: str) -> torch.Tensor:
        with self.blobs.open(digest) as file:
            return torch.from_numpy(wire.read_model(file.read(), self.spec))

    def round(self, number: int) -> dict[str, Receipt]:
        """Hands out work, and waits for the arrivals that close a round."""
        snapshot = self.worker.snapshot
        assert snapshot is not None
        self.worker.open_round(())
        for name in EXPERIMENT.client_names:
            if name not in self.work:
                draws = generator(EXPERIMENT.seed, "arrival", name, number)
                span = torch.empty(1, dtype=torch.float64).exponential_(generator=draws).item()
                self.work[name] = number, self.now + span, snapshot.ticket_models(name)["model"]
        soonest = sorted(self.work, key=lambda name: self.work[name][1])[:3]
        return {name: self.upload(name) for name in soonest}

    def upload(self, name: str) -> Receipt:
        ticket, self.now, started = self.work.pop(name)
        data = client_data(EXPERIMENT.data, EXPERIMENT.client_names.index(name), EXPERIMENT.seed)
        done = train_round(
            self.learner,
            data,
            self.model(started),
            self.states[name],
            seed=EXPERIMENT.seed,
            client=name,
            round_=ticket,
        )
        self.states[name] = done.personal
        gap = done.metrics["loss_before"] - done.metrics["loss_after"]
        report = ClientReport(samples=len(data.y_train), metrics={**done.metrics, "loss_gap": gap})
        body = wire.encode(self.spec, done.update_D.numpy(), claims(report))
        assert len(body) == upload_bytes(self.spec, report)
        return Receipt(
            round=ticket,
            kind="update",
            client=name,
            digest=self.blobs.put(body),
            samples=report.samples,
            metrics=report.metrics,
            started=started,
            size=len(body),
        )


def test_buffered_simulation_matches_the_round_engine(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    expected, running = simulate(EXPERIMENT), Aggregator(tmp_path)
    standing = Standing(EXPERIMENT.data.clients, EXPERIMENT.data.clients)
    ages = []
    for number, record in enumerate(expected.records):
        fresh = running.round(number)
        assert running.worker.snapshot is not None
        receipts = {old.client: old for old in running.worker.snapshot.pool} | fresh
        receipts = {client: receipts[client] for client in sorted(receipts)}
        decided = running.worker.close_round(number, receipts, "0-0", (), standing)
        assert record.participants == list(receipts)
        assert record.staleness == {c: number - one.round for c, one in receipts.items()}
        ages += record.staleness.values()
        assert [v.decision for v in record.verdicts] == [v.decision for v in decided.verdicts]
        assert record.norms == pytest.approx(decided.record.norms, rel=1e-4)
        assert record.bytes_down == dict.fromkeys(sorted(fresh), model_bytes(running.spec))
        sizes = {name: one.size for name, one in fresh.items()}
        assert record.bytes_up == pytest.approx(sizes, abs=40)
    assert max(ages) > 1
    ours_D = running.model(running.worker.snapshot.global_model)
    assert torch.allclose(expected.global_D, ours_D, rtol=0, atol=1e-4)
    for name, model_D in expected.models.items():
        digest = running.worker.snapshot.ticket_models(name)["model"]
        assert torch.allclose(model_D, running.model(digest), rtol=0, atol=1e-4)
