"""Stores that use a real Redis, and a federation with a run."""

import secrets
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.join_token_store import JoinTokenRecord
from rampart_fl.services.aggregator.state.member_store import AnswerRecord
from rampart_fl.services.aggregator.state.record_store import RecordStore
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stores import RunStores, Stores
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.clients import Finding, Quarantine
from rampart_fl.shared.protocol.messages import Phase, Receipt, RoundRecord, Ticket

DIGEST = "d" * 64
SNAPSHOT = Snapshot(global_model=DIGEST, reference=DIGEST)
NOW = 1_000_000.0
"""The time in tests, in Unix seconds."""
VALID_UNTIL = 4e9
"""Expiry of clients' tokens; the stores compare it with Redis' real clock."""
BY = Attribution("ada", "a test", NOW)
FINDING = Finding(
    reason="too far",
    detector="norm_bound",
    at=NOW,
    score=6.0,
    threshold=5.0,
    evidence=2.5,
    round=0,
)


def held(until: int, kind: str = "quarantine") -> Quarantine:
    """The quarantine or proposal that bars a client until a round."""
    return Quarantine.model_validate({**FINDING.model_dump(), "kind": kind, "until": until})


@dataclass
class LiveRun:
    """A run in Redis, its worker's fencing token, and shorthands for common operations."""

    stores: Stores
    run: RunStores
    fence: int
    records: RecordStore

    def ticket(self, round_: int, kind: str = "train") -> Ticket:
        """A ticket that names one model."""
        return Ticket.model_validate(
            {"round": round_, "kind": kind, "models": {"model": DIGEST}, "experiment": DIGEST}
        )

    def receipt(
        self, client: str, round_: int = 0, kind: str = "update", digest: str = DIGEST
    ) -> Receipt:
        """A receipt of some bytes."""
        return Receipt.model_validate(
            {"round": round_, "kind": kind, "client": client, "digest": digest, "samples": 3}
        )

    async def join(self, *clients: str) -> None:
        """Registers clients, which accept the run and become its members."""
        await self.register(*clients)
        for client in clients:
            answer = AnswerRecord(accept=True, at=NOW)
            assert (await self.run.members.answer(client, answer, 100))[0] == "recorded"

    async def register(self, *clients: str) -> None:
        """Registers clients."""
        for client in clients:
            await self.stores.join_tokens.add({f"join-{client}": JoinTokenRecord(NOW + 60)}, BY)
            answer = await self.stores.clients.join(
                f"join-{client}", f"token-{client}", client, "", NOW, VALID_UNTIL
            )
            assert answer[:2] == ("joined", client)

    async def open(
        self,
        round_: int,
        clients: Iterable[str],
        kind: str = "train",
        phase: Phase = "collecting",
        deadline: float | None = None,
    ) -> None:
        """Opens a round with one kind of ticket for these clients."""
        tickets = {client: self.ticket(round_, kind) for client in clients}
        await self.run.rounds.open(
            self.fence, round_, phase, NOW, deadline, tickets, sorted(tickets)
        )

    async def publish(self, record: RoundRecord, **evictions: str) -> None:
        """Publishes a record that evicts each of these clients for its reason."""
        whys = {c: FINDING.model_copy(update={"reason": why}) for c, why in evictions.items()}
        position = await self.run.events.last_position()
        filed = await self.records.file(record)
        await self.run.rounds.publish(self.fence, filed, whys, SNAPSHOT, position)

    async def quarantine(
        self, round_: int, abstained: tuple[str, ...] = (), **away: Quarantine
    ) -> None:
        """Publishes a round that quarantines clients, or proposes to evict them."""
        filed = await self.records.file(RoundRecord(round=round_, status="published"))
        position = await self.run.events.last_position()
        await self.run.rounds.publish(self.fence, filed, {}, SNAPSHOT, position, away, abstained)

    async def dump(self) -> dict[str, Any]:
        """Everything in the namespace, except for counters of attempts."""
        redis, prefix = self.stores.redis.client, self.stores.keys.prefix
        read = {
            "hash": redis.hgetall,
            "string": redis.get,
            "stream": redis.xrange,
            "list": lambda key: redis.lrange(key, 0, -1),
            "set": redis.smembers,
            "zset": lambda key: redis.zrange(key, 0, -1, withscores=True),
        }
        return {
            key: await read[await redis.type(key)](key)
            async for key in redis.scan_iter(match=f"{prefix}*")
            if not key.startswith(f"{prefix}attempts:")
        }

    async def happened(self) -> list[str]:
        """Types of all events, in order."""
        return [event.type for event in await self.run.events.read("0-0", 0.001)]

    async def last_events(self, count: int) -> list[dict[str, str]]:
        """The fields of the newest events, in order."""
        events = await self.run.events.read("0-0", 0.001)
        return [dict(event.fields) for event in events[-count:]]


@pytest.fixture
async def stores(redis_url: str) -> AsyncIterator[Stores]:
    """The stores of a new namespace."""
    stores = Stores.connect(redis_url, None, f"test-{secrets.token_hex(6)}")
    yield stores
    await stores.aclose()


@pytest.fixture
def policy() -> str:
    """The round policy of `experiment`; tests parametrize it."""
    return "sync"


@pytest.fixture
def experiment(policy: str) -> Experiment:
    """The experiment of `live_run`."""
    tables = {"name": "test", "data": {"dataset": "digits"}, "model": "logistic", "rounds": 3}
    return Experiment.from_tables({**tables, "policy": policy})


async def start_run(
    stores: Stores, fence: int, experiment: Experiment, submission: str
) -> RunStores:
    """Submits an experiment, and starts its run with a fixed, empty set of members."""
    info, new = await stores.runs.submit(experiment, submission, BY)
    assert new
    run = stores.of_run(info.run)
    assert await run.state.start(fence, experiment, ModelSpec.of([]), SNAPSHOT, NOW) == "founded"
    await run.members.assign_slots(fence, {}, 0)
    return run


@pytest.fixture
async def live_run(stores: Stores, experiment: Experiment, tmp_path: Path) -> LiveRun:
    """A run in Redis, with the records of its rounds in blobs."""
    fence = await stores.lease.acquire("worker", 60, NOW)
    assert fence is not None
    await stores.runs.set_ready(fence)
    run = await start_run(stores, fence, experiment, "first")
    return LiveRun(
        stores, run, fence, run.records(RunBlobs(str(tmp_path / "blobs"), tmp_path).of_run(run.run))
    )
