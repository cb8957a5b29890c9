"""The worker and the simulator drive the same rounds: equal uploads lead to equal decisions.

Legend: D coordinates, K numbers of a sketch, M rows.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.worker.open_round import OpenRoundData, failed_record
from rampart_fl.services.aggregator.worker.phases.state import PhaseState
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine, RoundResult
from rampart_fl.services.aggregator.worker.vectors import Vectors
from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt, RoundRecord
from rampart_fl.shared.robust.base import Context, Rows, State, Verdict
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.robust.evidence.challenges import Challenger, challenged
from rampart_fl.shared.simulation.clients import Uploads
from rampart_fl.shared.simulation.server import SimulatedServer

CLIENTS = 6
FEDCAP = {"name": "fedcap", "alpha": 10, "phi": 0.1}
EXPERIMENT = Experiment.from_tables(
    {
        "name": "drivers",
        "seed": 4,
        "policy": "buffered",
        "buffer": 3,
        "data": {"dataset": "digits", "clients": CLIENTS},
        "model": "logistic",
        "server": {"sample_cap": 100},
    }
)
STANDING = Standing(CLIENTS, CLIENTS, mode="evict")


class Witness(Challenger):
    """Accepts every row, records its arguments, and always challenges client b."""

    name: ClassVar[str] = "witness"
    seen: ClassVar[list[tuple[Rows, Context]]] = []

    @property
    def traces(self) -> int:
        return 8

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        copied = replace(rows, block_ND=rows.block_ND.clone())
        self.seen.append((copied, context))
        accepted = (Verdict(client, "accepted", self.name, 0.0, 1.0, "seen") for client in rows.ids)
        return tuple(accepted), state

    def challenge(
        self,
        rows: Rows,
        customization: Customization,
        global_D: Tensor,
        state: State,
        context: Context,
    ) -> tuple[Customization, State]:
        weights_BM = torch.tensor([[3.0] * (len(rows) - 1) + [-2.0]], dtype=torch.float64)
        return challenged(customization, global_D, rows, {"b": weights_BM}), state


@dataclass(frozen=True)
class Sent:
    """An upload, as both drivers know it."""

    round: int
    start_D: Tensor
    started: str
    update_D: Tensor
    samples: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    origin_D: Tensor | None = None


class Both:
    """One federation that both drivers decide: the worker and the simulator."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.blobs = Blobs(folder)
        self.spec, first = RoundEngine.first_model(EXPERIMENT, self.blobs)
        self.vectors = Vectors(self.blobs, self.spec, torch.device("cpu"))
        self.engine = RoundEngine(EXPERIMENT, self.spec, self.blobs, torch.device("cpu"))
        self.engine.rounds = replace(self.engine.rounds, plan=plan)
        self.engine.restore(first)
        self.server = SimulatedServer.of(
            EXPERIMENT, self.vectors.read(first.global_model), self.spec
        )
        self.server.rounds = replace(self.server.rounds, plan=plan)
        self.draws = torch.Generator().manual_seed(7)

    def vector(self) -> Tensor:
        return 0.1 * torch.randn(self.spec.dim, generator=self.draws)

    def put(self, vector_D: Tensor) -> tuple[str, bool]:
        """Stores a vector as an agent sends it: zeros, and a flag, if it is not finite."""
        diverged = not bool(vector_D.isfinite().all())
        body = torch.zeros(self.spec.dim) if diverged else vector_D
        return self.blobs.put(wire.encode(self.spec, body.numpy())), diverged

    def start(self, round_: int, client: str, probe_D: Tensor | None = None) -> tuple[Tensor, str]:
        """The model that both drivers give to a client."""
        assert self.engine.snapshot is not None
        probes = {} if probe_D is None else {client: probe_D}
        start_D = self.server.models(round_, [client], probes)[0]
        started = self.engine.snapshot.start(client)
        if probe_D is not None:
            digest, diverged = self.put(probe_D)
            answer = None if diverged else digest
            started = self.engine.customize_newcomer(client, answer, round_)
        torch.testing.assert_close(self.vectors.read(started), start_D, rtol=0, atol=1e-6)
        return start_D, started

    def send(
        self,
        round_: int,
        client: str,
        samples: int = 10,
        update_D: Tensor | None = None,
        probe_D: Tensor | None = None,
    ) -> Sent:
        start_D, started = self.start(round_, client, probe_D)
        update_D = self.vector() if update_D is None else update_D
        origin_D = self.server.origins([client]).get(client)
        return Sent(
            round_, start_D, started, update_D, samples, {"loss_gap": samples / 8}, origin_D
        )

    def receipt(self, client: str, sent: Sent) -> Receipt:
        digest, diverged = self.put(sent.update_D)
        return Receipt(
            round=sent.round,
            kind="update",
            client=client,
            digest=digest,
            started=sent.started,
            samples=sent.samples,
            metrics=dict(sent.metrics),
            diverged=diverged,
        )

    def decide(
        self, round_: int, sent: Mapping[str, Sent], in_use: Collection[str] = ()
    ) -> RoundResult:
        """The worker's decision."""
        receipts = {client: self.receipt(client, one) for client, one in sorted(sent.items())}
        self.engine.open_round(())
        self.engine.load([receipt for c, receipt in receipts.items() if sent[c].round == round_])
        return self.engine.close_round(
            round_, receipts, "0-0", (), STANDING, in_use=frozenset(in_use)
        )

    def close(self, round_: int, sent: Mapping[str, Sent], seen: Collection[str]) -> RoundRecord:
        """The simulator's decision."""
        names = sorted(sent)
        uploads = Uploads(
            tuple(names),
            torch.stack([sent[name].update_D for name in names]),
            tuple(sent[name].samples for name in names),
            {name: dict(sent[name].metrics) for name in names},
        )
        start_KD = torch.stack([sent[name].start_D for name in names])
        ages = {name: round_ - one.round for name, one in sent.items()}
        origins = {name: one.origin_D for name, one in sent.items() if one.origin_D is not None}
        return self.server.close(round_, start_KD, uploads, origins, staleness=ages, seen=seen)

    def round(
        self,
        round_: int,
        sent: Mapping[str, Sent],
        seen: Collection[str] = (),
        in_use: Collection[str] = (),
    ) -> Rows:
        """Decides a round with both drivers, compares all results, and returns the rows."""
        Witness.seen.clear()
        decided, record = self.decide(round_, sent, in_use), self.close(round_, sent, seen)
        (theirs, there), (ours, here) = Witness.seen
        same_rows(theirs, ours)
        assert (there.round, there.seed, there.layout) == (here.round, here.seed, here.layout)
        assert there.standing == here.standing == STANDING
        assert decided.record.verdicts == record.verdicts
        assert decided.record.quarantined == record.quarantined
        assert decided.record.mode == record.mode
        assert decided.record.weights == pytest.approx(record.weights)
        assert decided.record.norms == pytest.approx(record.norms, rel=1e-5)
        snapshot, custom = decided.snapshot, self.server.customization
        self.close_to(snapshot.global_model, self.server.global_D)
        assert custom.models is not None and snapshot.customized.keys() == set(custom.models.names)
        for name, digest in snapshot.customized.items():
            self.close_to(digest, custom.models.model(name))
        assert snapshot.challenged == dict(custom.challenged) != {}
        return ours

    def close_to(self, digest: str, model_D: Tensor) -> None:
        torch.testing.assert_close(self.vectors.read(digest), model_D, rtol=0, atol=1e-6)


def same_rows(theirs: Rows, ours: Rows) -> None:
    assert (theirs.ids, theirs.dropped) == (ours.ids, ours.dropped)
    assert torch.equal(theirs.trusted_weights(), ours.trusted_weights())
    assert theirs.metadata.keys() == ours.metadata.keys()
    for name, column_M in theirs.metadata.items():
        assert torch.equal(column_M, ours.metadata[name]), name
    assert theirs.traces is not None and ours.traces is not None
    assert torch.equal(theirs.traces.upload_MK, ours.traces.upload_MK)
    torch.testing.assert_close(theirs.traces.start_MK, ours.traces.start_MK, rtol=0, atol=1e-5)
    for place in range(len(ours)):
        torch.testing.assert_close(theirs.row(place), ours.row(place), rtol=0, atol=1e-5)


@pytest.mark.parametrize("calibrate", [True, False])
def test_drivers_agree_on_diverged_stale_challenged_and_new_clients(
    tmp_path: Path, calibrate: bool
) -> None:
    plan = Plan.of("weighted_mean", (Witness(),), FEDCAP, calibrate=calibrate)
    both, nan = Both(tmp_path, plan), torch.full((650,), torch.nan)
    first = {client: both.send(0, client) for client in "abc"}
    first |= {"a": both.send(0, "a", samples=700), "d": both.send(0, "d", update_D=nan)}
    rows = both.round(0, first)
    assert (rows.ids, rows.dropped) == (("a", "b", "c"), ("d",))
    assert rows.trusted_weights().tolist() == [100, 10, 10]

    global_D, own_D = both.server.global_D, both.server.own("b")
    second = {"a": both.send(1, "a"), "b": both.send(1, "b"), "c": first["c"]}
    second["d"] = both.send(1, "d", probe_D=nan)
    second["e"] = both.send(1, "e", probe_D=both.vector())
    assert torch.equal(second["d"].start_D, global_D), "a diverged probe gets the global model"
    assert not torch.equal(second["e"].start_D, global_D)
    rows = both.round(1, second, seen={"c"})
    assert rows.fresh() == [True, True, False, True, True]
    assert rows.trusted_weights()[2].item() == pytest.approx(10 / 2**0.5)
    if calibrate:
        moved_D = own_D - global_D
        torch.testing.assert_close(rows.row(1), second["b"].update_D + moved_D)
    else:
        torch.testing.assert_close(rows.row(1), second["b"].update_D)

    third = {**second, "a": both.send(2, "a"), "c": both.send(2, "c")}
    global_D, late = both.server.global_D, both.send(2, "b")
    rows = both.round(2, third, seen=second.keys() - {"a", "c"}, in_use={late.started})
    if calibrate:  # No challenge stays in a stale row, although the client is challenged again.
        assert not torch.equal(second["b"].start_D, own_D)
        torch.testing.assert_close(rows.row(1), second["b"].update_D + own_D - global_D)

    fourth = {**third, "b": late}
    global_D, later_D = both.server.global_D, late.origin_D
    rows = both.round(3, fourth, seen=third.keys() - {"b"})
    assert later_D is not None
    if calibrate:  # Neither does one stay in an upload that comes a round later.
        torch.testing.assert_close(rows.row(1), late.update_D + later_D - global_D)


def test_restarted_worker_makes_the_same_model_for_a_newcomer(tmp_path: Path) -> None:
    """This also holds if the pool has a row of a client that was challenged."""
    both = Both(tmp_path, Plan.of("weighted_mean", (Witness(),), FEDCAP))
    for round_ in range(2):
        both.round(round_, {client: both.send(round_, client) for client in "abc"})
    snapshot, probe_D = both.engine.snapshot, both.vector()
    assert snapshot is not None and snapshot.origins.keys() == {"b"}
    assert snapshot.blobs().issuperset(snapshot.origins["b"].values())
    _, expected = both.start(2, "d", probe_D)
    both.engine.restore(snapshot)
    assert both.start(2, "d", probe_D)[1] == expected


def test_drivers_agree_on_isolated_groups(tmp_path: Path) -> None:
    """One client is challenged: its row is relative to its group's own model."""
    plan = Plan.of("weighted_mean", (), {"name": "flcert", "groups": 2})
    both = Both(tmp_path, replace(plan, detectors=(Witness(),)))
    for round_ in range(3):
        rows = both.round(round_, {client: both.send(round_, client) for client in "abcd"})
        assert len(rows) == 4


def test_drivers_record_a_failed_round_alike(tmp_path: Path) -> None:
    """Both records contain the metrics of the clients whose updates arrived in the round."""
    plan = Plan.of("krum", (Witness(),), FEDCAP, f=2)
    both = Both(tmp_path, plan)
    sent = {client: both.send(0, client) for client in "abc"}
    with pytest.raises(PreconditionError) as error:
        both.decide(1, sent)
    record = both.close(1, sent, seen={"c"})
    opened = OpenRoundData({c: both.receipt(c, sent[c]) for c in "ba"})
    state = PhaseState("aggregating", 1, selected=frozenset("ab"))
    theirs = failed_record(EXPERIMENT, state, opened, error.value.detail, 0.0)
    for one in (theirs, record):
        assert (one.round, one.status, one.participants) == (1, "failed", ["a", "b"])
        assert one.metrics == {c: {"loss_gap": 1.25} for c in "ab"}
    assert theirs.reason == record.reason
    assert both.server.global_D is not None and both.server.neighbours is None
