"""A run without training: this process writes its state and records as a worker writes them.

The page's benchmark and tests use this run, because a real run of a thousand clients over a
thousand rounds would take too long. The api serves the run, and this process holds the worker's
lease.

Legend: N clients.
"""

import asyncio
import math
import re
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.join_token_store import JoinTokenRecord
from rampart_fl.services.aggregator.state.member_store import AnswerRecord
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.console.launcher.servers import START, LocalServers
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.clients import Finding
from rampart_fl.shared.protocol.messages import (
    CLIENT_ID,
    RoundRecord,
    StageReport,
    Ticket,
    VerdictRecord,
)

LIMIT = 12.0
"""Evidence at which a made-up client is evicted."""
DIGEST = "d" * 64
SNAPSHOT = Snapshot(global_model=DIGEST, reference=DIGEST)
MIXED = 200
"""The largest number of clients for which there are mixing weights."""


class MadeUpRun(LocalServers):
    """Redis and an api that serves one made-up run.

    Args:
        folder: folder for state and logs.
        clients: ids of the clients; the updates of every tenth client have too large norms.
        rounds: number of rounds that have ended when the api starts.
        length: number of rounds of the experiment.
    """

    def __init__(
        self, folder: Path, clients: Sequence[str], rounds: int, length: int | None = None
    ) -> None:
        super().__init__(folder, {"RAMPART_ROLE": "api"})
        self.clients = list(clients)
        self.rounds = rounds
        self.length = length or rounds + 10
        self.round = 0
        self.evidence = dict.fromkeys(self.clients, 0.0)
        self.evicted: set[str] = set()
        self.draws = np.random.default_rng(0)
        self.run = ""
        self.fence = 0

    def start_servers(self) -> None:
        """Starts Redis, writes the run, and starts the api."""
        self.start_redis()
        self._do(self._found())
        self.publish(self.rounds)
        self.start_aggregator()
        self.operator.ready(START)

    def publish(self, rounds: int = 1) -> None:
        """Publishes the next rounds, one after the other."""
        self._do(self._publish(rounds))

    def post(self, client: str) -> None:
        """Writes the event that reports an update of this client."""
        self._do(self._post(client))

    @staticmethod
    def _do(work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine on a new thread, because Playwright's event loop uses the caller's."""
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, work).result()

    def _stores(self) -> Stores:
        url = f"redis://127.0.0.1:{self.redis_port}/0"
        return Stores.connect(url, self.redis_password, "rampart")

    async def _found(self) -> None:
        stores = self._stores()
        tables = {"name": "made-up", "rounds": self.length, "model": "logistic"}
        data = {"dataset": "digits", "clients": len(self.clients)}
        experiment = Experiment.from_tables({**tables, "data": data})
        fence = await stores.lease.acquire("made-up-worker", 86_400, time.time())
        assert fence is not None
        self.fence = fence
        await stores.runs.set_ready(fence)
        info, _ = await stores.runs.submit(
            experiment, "made-up", Attribution("owner", "made up", time.time())
        )
        self.run = info.run
        run = stores.of_run(info.run)
        await run.state.start(fence, experiment, ModelSpec.of([]), SNAPSHOT, time.time())
        await run.members.assign_slots(fence, {}, 0)
        valid = [client for client in self.clients if re.match(CLIENT_ID, client)]
        joins = {f"join-{client}": JoinTokenRecord(time.time() + 60) for client in valid}
        by = Attribution("owner", "made up", time.time())
        await stores.join_tokens.add(joins, by)
        for client in valid:
            now = time.time()
            await stores.clients.join(f"join-{client}", f"t-{client}", client, "", now, now + 3600)
            answer = AnswerRecord(accept=True, at=now)
            await run.members.answer(client, answer, len(self.clients))
        await stores.aclose()

    async def _publish(self, rounds: int) -> None:
        stores = self._stores()
        run = stores.of_run(self.run)
        folder = f"{self.folder}/blobs/rampart"
        records = run.records(RunBlobs(folder, self.folder / "cache").of_run(self.run))
        ticket = Ticket(kind="train", models={"model": DIGEST}, experiment=DIGEST)
        for _ in range(rounds):
            tickets = {client: ticket for client in self.clients if client not in self.evicted}
            now = time.time()
            await run.rounds.open(
                self.fence, self.round, "collecting", now, now + 60, tickets, sorted(tickets)
            )
            record = self.record(now)
            evictions = {
                v.client: Finding.of(v, self.round, now)
                for v in record.verdicts
                if v.decision == "evicted"
            }
            self.evicted |= evictions.keys()
            position = await run.events.last_position()
            filed = await records.file(record)
            await run.rounds.publish(self.fence, filed, evictions, SNAPSHOT, position)
            self.round += 1
        await stores.aclose()

    async def _post(self, client: str) -> None:
        stores = self._stores()
        key = stores.of_run(self.run).keys.events
        await stores.redis.ask(
            "xadd", key, {"type": "update", "client": client, "round": str(self.round)}
        )
        await stores.aclose()

    def record(self, now: float) -> RoundRecord:
        """The record of the next round."""
        here = [client for client in self.clients if client not in self.evicted]
        away = {client for client in here if self.draws.random() < 0.02}
        posted = [client for client in here if client not in away]
        norms = dict(
            zip(posted, self.draws.lognormal(0.0, 0.15, len(posted)).tolist(), strict=True)
        )
        verdicts = [self.verdict(client, norms) for client in posted]
        share = 0.9 - 0.7 * math.exp(-self.round / 25)
        return RoundRecord(
            round=self.round,
            status="published",
            participants=posted,
            missing=sorted(away),
            mode="evict",
            verdicts=verdicts,
            weights=dict.fromkeys(posted, 1 / len(posted)),
            norms=norms,
            metrics={client: self.metrics(share) for client in posted},
            models={"global": DIGEST, "reference": DIGEST},
            opened_at=now - 1.5,
            closed_at=now,
            timings={"detect": 0.02, "aggregate": 0.01},
            reports=[StageReport(stage="calibrate"), StageReport(stage="mean")],
            mixing=self.mixing(posted) if len(posted) <= MIXED else {},
        )

    def verdict(self, client: str, norms: dict[str, float]) -> VerdictRecord:
        """The verdict on a client; adds to the evidence against it."""
        hostile = self.clients.index(client) % 10 == 9
        if hostile:
            norms[client] *= 2.5
        score = self.draws.normal(1.2 if hostile else -0.05, 0.6)
        self.evidence[client] = max(0.0, self.evidence[client] + score)
        decision = "accepted"
        if self.evidence[client] > LIMIT:
            decision = "evicted"
        elif score > 1.8:
            decision = "rejected"
        return VerdictRecord.model_validate(
            {
                "client": client,
                "decision": decision,
                "detector": "made-up",
                "score": score,
                "threshold": LIMIT,
                "evidence": self.evidence[client],
                "reason": f"evidence {self.evidence[client]:.3g} of {LIMIT:g} from {client}",
            }
        )

    def metrics(self, share: float) -> dict[str, float]:
        """A client's metrics if a model predicts this share of its test samples correctly."""
        right = self.draws.binomial(50, [share, min(1.0, share + 0.05), min(1.0, share + 0.07)])
        kinds = ("customized", "local", "personalized")
        counts = {f"correct_{kind}": float(n) for kind, n in zip(kinds, right, strict=True)}
        return {"test_samples": 50.0, **counts}

    def mixing(self, clients: Sequence[str]) -> dict[str, dict[str, float]]:
        """Weights with four clusters."""
        groups = {client: self.clients.index(client) % 4 for client in clients}
        rows = {}
        for client in clients:
            raw = {c: 1.0 + 9.0 * (groups[c] == groups[client]) for c in clients}
            raw[client] += 10
            total = sum(raw.values())
            rows[client] = {c: weight / total for c, weight in raw.items()}
        return rows
